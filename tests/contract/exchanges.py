"""What one suite asks of every server, by name, and what each answers.

Loading and pressure have modules of their own; nowhere else are the servers' differences written.
`test_exchanges` and `test_pressure` ask for all of it; `differences` makes the tables of
docs/reference/servers.md from it.
"""

from __future__ import annotations

import gzip

from tests.contract.loading_exchanges import LOADING
from tests.contract.pressure_exchanges import BAD_HOURS, WITH_KSERVE
from tests.contract.replies import (
    KINDS,
    LARGEST_BODY,
    MODELS,
    Exchange,
    Reply,
    alike,
    answered,
    bare,
    refused,
    replies,
)
from tests.contract.requests import BINARY_TYPE, binary_request, changed, json_request

_PARSING = replies(refused(), refused(500), refused())
"""Triton's single-model mode calls a client's slip its own fault.

Its multi-model mode calls every fault the client's.
"""
_BINARY = binary_request([b"a"])
_BAD_TEXT = binary_request([b"\xff\xfe"])
_LYING = binary_request([b"a"], size=4)
_GZIP = (("Content-Encoding", "gzip"),)

ANSWERS = (
    Exchange(
        name="texts in JSON", body=json_request(["a dog", "the cat"]), replies=alike(answered())
    ),
    Exchange(
        name="texts in the binary extension",
        body=_BINARY[0],
        content_type=_BINARY[1],
        replies=alike(answered()),
    ),
    Exchange(
        name="no Content-Type", body=json_request(["a"]), content_type="", replies=alike(answered())
    ),
    # The Python server splits what is larger than the engine's batch, and reads plain texts.
    Exchange(
        name="more rows than the batch",
        body=json_request(["a"] * 33),
        replies=replies(answered(), refused(), refused()),
    ),
    Exchange(
        name='`{"inputs": ["a"]}`',
        body=b'{"inputs": ["a"]}',
        replies=replies(answered(), refused(), refused()),
    ),
    Exchange(
        name="shape without the second axis",
        body=changed(shape=[1]),
        replies=replies(answered(), refused(), refused()),
    ),
    # Triton takes a body that it can read no header of for one raw text, even an empty one.
    Exchange(name="empty body", replies=replies(refused(), answered(), answered())),
    Exchange(
        name="gzip",
        body=gzip.compress(json_request(["a"]), mtime=0),
        headers=_GZIP,
        replies=replies(answered(), refused(500), refused()),
    ),
    Exchange(
        name="unknown Content-Encoding",
        body=json_request(["a"]),
        headers=(("Content-Encoding", "br"),),
        replies=replies(refused(415), answered(), answered()),
    ),
)
"""Requests that at least one server answers."""

SLIPS = (
    Exchange(name="not JSON", body=b"{", replies=_PARSING),
    Exchange(name="not an object", body=b"[]", replies=_PARSING),
    Exchange(name="no inputs", body=b"{}", replies=_PARSING),
    Exchange(name="20,000 brackets", body=b"[" * 20_000, replies=_PARSING),
    Exchange(
        name="NaN for a text", body=changed(data=["#"]).replace(b'"#"', b"NaN"), replies=_PARSING
    ),
    Exchange(name="number for a text", body=changed(data=[1]), replies=_PARSING),
    Exchange(
        name="text/csv",
        body=b"a dog",
        content_type="text/csv",
        replies=replies(refused(415), refused(500), refused()),
    ),
    Exchange(name="unknown input", body=changed(name="texts"), replies=alike(refused())),
    Exchange(
        name="unknown output",
        body=json_request(["a"], outputs=[{"name": "logits"}]),
        replies=alike(refused()),
    ),
    Exchange(
        name="wrong datatype", body=changed(datatype="FP32", data=[1.0]), replies=alike(refused())
    ),
    Exchange(
        name="wrong shape", body=changed(shape=[1, 2], data=["a", "b"]), replies=alike(refused())
    ),
    Exchange(
        name="fewer texts than the shape says", body=changed(shape=[2, 1]), replies=alike(refused())
    ),
    Exchange(
        name="text that is not UTF-8",
        body=_BAD_TEXT[0],
        content_type=_BAD_TEXT[1],
        replies=alike(refused()),
    ),
    Exchange(
        name="binary size that lies",
        body=_LYING[0],
        content_type=_LYING[1],
        replies=alike(refused()),
    ),
    Exchange(
        name="header size beyond the body",
        body=_BINARY[0],
        content_type=f"{BINARY_TYPE};json-header-size=99999",
        replies=alike(refused()),
    ),
    Exchange(
        name="body of more than 6 MiB",
        body=b" " * (LARGEST_BODY + 1),
        replies=replies(refused(413), refused(500), refused()),
    ),
)
"""Requests that no server answers."""

PATHS = (
    Exchange(name="GET /ping", method="GET", path="/ping", replies=alike(bare(200))),
    Exchange(name="POST /ping", path="/ping", replies=alike(refused(405))),
    Exchange(
        name="GET /invocations",
        method="GET",
        path="/invocations",
        replies=replies(refused(405), refused(405), refused(405), refused(404)),
    ),
    Exchange(
        name="GET /nothing",
        method="GET",
        path="/nothing",
        replies=replies(refused(404), bare(400), bare(400)),
    ),
    Exchange(
        name="POST /invocations of a multi-model server",
        path="/invocations",
        body=json_request(["a"]),
        replies={"python-mme": refused(404), "triton-mme": refused()},
    ),
    Exchange(
        name="GET /models",
        method="GET",
        path="/models",
        replies=replies(
            refused(404),
            Reply(status=200, says=MODELS),
            Reply(status=200, says=MODELS),
            Reply(status=200, says=MODELS),
        ),
    ),
    Exchange(
        name="GET /models/NAME of an unknown model",
        method="GET",
        path="/models/none",
        replies=replies(refused(404), bare(404), bare(404)),
    ),
    Exchange(
        name="DELETE /models/NAME of an unknown model",
        method="DELETE",
        path="/models/none",
        replies=replies(refused(404), bare(404), bare(404)),
    ),
    Exchange(
        name="POST /models/NAME/invoke of an unknown model",
        path="/models/none/invoke",
        body=json_request(["a"]),
        replies=replies(refused(404), bare(404), bare(404)),
    ),
    Exchange(
        name="PUT /models",
        method="PUT",
        path="/models",
        replies=replies(refused(404), bare(400), bare(400), refused(405)),
    ),
)
"""Paths and methods."""

TABLES = (
    ("Requests that may be answered", ANSWERS, KINDS),
    ("Requests that are refused", SLIPS, KINDS),
    ("Paths", PATHS, KINDS),
    ("Loading", LOADING, KINDS),
    ("Under faults and pressure", BAD_HOURS, WITH_KSERVE),
)
