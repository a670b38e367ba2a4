"""The requests that every server of the suite gets, by name, and each server's reply.

Loading has a module of its own; `test_exchanges` sends all of it.
"""

from __future__ import annotations

from tests.contract.replies import (
    LARGEST_BODY,
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
