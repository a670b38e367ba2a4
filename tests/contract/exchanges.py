"""The requests that every server of the suite gets, by name, and each server's reply.

`test_exchanges` sends all of it.
"""

from __future__ import annotations

from tests.contract.replies import (
    LARGEST_BODY,
    MODEL,
    MODELS,
    Exchange,
    Reply,
    alike,
    answer,
    bare,
    multi_model,
    refusal,
    replies,
)
from tests.contract.requests import (
    BINARY_TYPE,
    binary_request,
    changed_request,
    json_request,
    lying_request,
)

_ANSWERED, _REFUSED = alike(answer()), alike(refusal())
_PYTHON_ONLY = replies(answer(), refusal(), refusal())
_UNKNOWN_MODEL = replies(refusal(404), bare(404), bare(404))
_BINARY = binary_request([b"a"])
_LISTED = Reply(status=200, says=MODELS)

ANSWERS = (
    Exchange("texts in JSON", _ANSWERED, json_request(["a dog", "the cat"])),
    Exchange("texts in the binary extension", _ANSWERED, *_BINARY),
    Exchange("no Content-Type", _ANSWERED, json_request(["a"]), ""),
    # The Python server splits what is larger than the engine's batch, and reads plain texts.
    Exchange("more rows than the batch", _PYTHON_ONLY, json_request(["a"] * 33)),
    Exchange('`{"inputs": ["a"]}`', _PYTHON_ONLY, b'{"inputs": ["a"]}'),
    Exchange("shape without the second axis", _PYTHON_ONLY, changed_request(shape=[1])),
    # Triton takes a body without a header for one raw text, even an empty one.
    Exchange("empty body", replies(refusal(), answer(), answer())),
    Exchange(
        "compressed body",
        alike(refusal(415)),
        json_request(["a"]),
        headers=(("Content-Encoding", "gzip"),),
    ),
)
"""Requests that at least one server answers."""

SLIPS = (
    Exchange("not JSON", _REFUSED, b"{"),
    Exchange("not an object", _REFUSED, b"[]"),
    Exchange("no inputs", _REFUSED, b"{}"),
    Exchange("200,000 brackets", _REFUSED, b"[" * 200_000),
    Exchange("text whose length lies", _REFUSED, *lying_request()),
    Exchange("NaN for a text", _REFUSED, changed_request(data=["#"]).replace(b'"#"', b"NaN")),
    Exchange("number for a text", _REFUSED, changed_request(data=[1])),
    Exchange("text/csv", alike(refusal(415)), b"a dog", "text/csv"),
    Exchange("unknown input", _REFUSED, changed_request(name="texts")),
    Exchange("unknown output", _REFUSED, json_request(["a"], outputs=[{"name": "logits"}])),
    Exchange("wrong datatype", _REFUSED, changed_request(datatype="FP32", data=[1.0])),
    Exchange("wrong shape", _REFUSED, changed_request(shape=[1, 2], data=["a", "b"])),
    Exchange("fewer texts than the shape says", _REFUSED, changed_request(shape=[2, 1])),
    Exchange("text that is not UTF-8", _REFUSED, *binary_request([b"\xff\xfe"])),
    Exchange("binary size that lies", _REFUSED, *binary_request([b"a"], size=4)),
    Exchange(
        "header size beyond the body", _REFUSED, _BINARY[0], f"{BINARY_TYPE};json-header-size=99999"
    ),
    Exchange(
        "body of more than 6 MiB",
        alike(refusal(413)),
        b" " * (LARGEST_BODY + 1),
    ),
)
"""Requests that no server answers."""

PATHS = (
    Exchange("GET /ping", alike(bare(200)), method="GET", path="/ping"),
    Exchange("POST /ping", alike(refusal(405)), path="/ping"),
    Exchange(
        "GET /invocations",
        replies(refusal(405), refusal(405), refusal(405)),
        method="GET",
        path="/invocations",
    ),
    Exchange("GET /nothing", alike(refusal(404)), method="GET", path="/nothing"),
    Exchange(
        "POST /invocations of a multi-model server",
        multi_model(refusal()),
        json_request(["a"]),
        path="/invocations",
    ),
    Exchange(
        "GET /models",
        replies(refusal(404), _LISTED, _LISTED),
        method="GET",
        path="/models",
    ),
    Exchange(
        "GET /models/NAME of an unknown model", _UNKNOWN_MODEL, method="GET", path="/models/none"
    ),
    Exchange(
        "DELETE /models/NAME of an unknown model",
        replies(refusal(404), refusal(405), bare(404)),
        method="DELETE",
        path="/models/none",
    ),
    Exchange(
        "POST /models/NAME/invoke of an unknown model",
        replies(refusal(404), bare(404), refusal(404)),
        json_request(["a"]),
        path="/models/none/invoke",
    ),
    # Triton itself would answer twice and abort: the parser's answer, then the loader's.
    Exchange(
        "POST /models with a body that is not JSON",
        replies(refusal(404), refusal(405), refusal()),
        b"{",
        path="/models",
    ),
    Exchange(
        "PUT /models",
        replies(refusal(404), refusal(405), refusal(405)),
        method="PUT",
        path="/models",
    ),
)
"""Paths and methods."""

TO_OTHER = (("X-Amzn-SageMaker-Target-Model", "fedcba9876543210/model.tar.gz"),)
TO_SPOILED = (("X-Amzn-SageMaker-Target-Model", "spoiled/model.tar.gz"),)


def _load(name: str, reply: Reply, body: bytes, headers=()) -> Exchange:
    return Exchange(name, multi_model(reply), body, path="/models", headers=headers)


def _load_other(name: str, reply: Reply) -> Exchange:
    return _load(name, reply, b'{"model_name": "other", "url": "{archive}"}', TO_OTHER)


def _to_other(name: str, reply: Reply, method: str) -> Exchange:
    return Exchange(name, multi_model(reply), method=method, path="/models/other", headers=TO_OTHER)


def _invoke_other(name: str, reply: Reply, headers=TO_OTHER) -> Exchange:
    body, path = json_request(["a dog"]), "/models/other/invoke"
    return Exchange(name, multi_model(reply), body, path=path, headers=headers)


LOADING = (
    _load("load without a url", refusal(), b'{"model_name": "x"}'),
    _load(
        "load from a folder that is not there",
        refusal(),
        b'{"model_name": "x", "url": "/nowhere/model"}',
    ),
    _load(
        "load from a folder that holds no model",
        refusal(),
        b'{"model_name": "x", "url": "{empty}"}',
    ),
    _load(
        "load an archive with a changed file",
        refusal(),
        b'{"model_name": "x", "url": "{spoiled}"}',
        TO_SPOILED,
    ),
    _load_other("load", bare(200)),
    _load_other("load what is loaded", refusal(409)),
    _to_other("GET /models/NAME", Reply(status=200, says=MODEL), "GET"),
    Exchange(
        "GET /models?limit=1, where two are loaded",
        multi_model(Reply(status=200, says=MODELS)),
        method="GET",
        path="/models?limit=1",
    ),
    _invoke_other("POST /models/NAME/invoke", answer()),
    # Triton serves the model under its target's name: the hash in the path is not asked once the
    # list has it.
    _invoke_other("POST /models/NAME/invoke without the target model's header", refusal(), ()),
    _to_other("DELETE /models/NAME", bare(200), "DELETE"),
    _invoke_other("POST /models/NAME/invoke of an unloaded model", refusal(404)),
    _load_other("load again", bare(200)),
    _to_other("unload again", bare(200), "DELETE"),
)
"""Requests to one multi-model server, in this order."""
