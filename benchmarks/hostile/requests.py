"""Requests that no client should send, drawn from a seed: bodies, and bytes on the wire."""

from __future__ import annotations

import copy
import gzip
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

from container.wire import BINARY_TYPE, HEADER_SIZE, JSON_TYPE

TEXTS = {
    "inputs": [
        {"name": "text", "shape": [2, 1], "datatype": "BYTES", "data": ["a dog", "the cat"]}
    ],
    "id": "7",
}
TENSORS = {
    "inputs": [
        {"name": "signal", "shape": [1, 2, 2], "datatype": "FP32", "data": [1.5, -2, 3, 4]},
        {"name": "gain", "shape": [1, 1], "datatype": "INT64", "data": [2]},
    ],
    "outputs": [{"name": "scaled"}, {"name": "count"}],
    "parameters": {"binary_data_output": False, "timeout": 5_000_000},
}
DEEP: Any = 0
for _ in range(900):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 7, 2**31, 2**62, 2**63, 2**64, -(2**63), 2**200, 0.5, -0.0,
    1e38, 1e39, 1e308, float("nan"),
    float("inf"), -float("inf"), "", "a", "NaN", "x" * 5000, "\u0000", "\ud800", [], {}, [[]], [{}],
    [None], [[1], [2]],
    [True, 1], [1, "a"], [0, 2**62, 4], [2**62, 4], [-1, -1], [1, 2, 0], [32, 2, 0], ["a"] * 2000,
    [0.1] * 5000, {"a": {}}, DEEP,
    "BYTES", "FP32", "INT64", "BOOL", "text", "signal", "gain", "scaled", {"binary_data_size": 4},
    {"timeout": -1},
    {"timeout": 1},
    {"binary_data": True}, [{"name": "scaled"}] * 500, [{"name": "embedding"}] * 500,
)  # fmt: skip
TYPES = (
    JSON_TYPE,
    "",
    "text/csv",
    f"{BINARY_TYPE};json-header-size=",
    BINARY_TYPE,
    "application/octet-stream",
    'a/b; c="',
    "\xff",
)
ENCODINGS = ("identity", "gzip", "deflate", "br", "gzip, gzip", "\xff")
PATHS = ("/invocations",) * 50 + (
    "/ping",
    "/v2",
    "/metrics",
    "/v2/models/x/infer",
    "/models",
    "/%00",
    "/a?b=c#d",
    "/" + "x" * 3000,
)
METHODS = ("POST",) * 50 + ("GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH")
NOWHERE = ("/nowhere", "/etc", "file:///proc/self", "../..", "")
"""Urls of no archive."""
BOMB = gzip.compress(bytes(64 << 20), 9)
"""64 KB that unpack to 64 MiB."""


def hostile_requests(seed: int, count: int, right: Any) -> Iterator[tuple[str, bytes]]:
    """Method and bytes of whole, well-framed requests; each must get exactly one answer.

    `right` is spoiled in most.
    """
    draw = random.Random(seed)
    for _ in range(count):
        method, path = draw.choice(METHODS), draw.choice(PATHS)
        body, headers = _body(draw, right if draw.random() < 0.9 else draw.choice((TEXTS, TENSORS)))
        lines = [f"{method} {path} HTTP/1.1", "Host: x", f"Content-Length: {len(body)}", *headers]
        yield method, "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def deep_requests(count: int) -> Iterator[tuple[str, bytes]]:
    """Bodies of lists in lists, deep enough to end a parser that calls itself for each."""
    for number in range(count):
        body = (b"", b'{"inputs":', b'{"id":"1","inputs":[{"data":')[number % 3] + b"[" * 150_000
        yield "POST", _post(body, JSON_TYPE)


def lying_requests(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Binary texts whose lengths lie, by a byte or by gigabytes; all else is right."""
    draw = random.Random(seed)
    for _ in range(count):
        tail = bytearray(struct.pack("<I", 5) + b"a dog" + struct.pack("<I", 7) + b"the cat")
        lies = (0, 4, 6, 8, 2**16, 2**31, 2**32 - 1)
        struct.pack_into("<I", tail, draw.choice((0, 9)), draw.choice(lies))
        tensor = {
            "name": "text",
            "shape": [2, 1],
            "datatype": "BYTES",
            "parameters": {"binary_data_size": len(tail)},
        }
        header = json.dumps({"inputs": [tensor]}).encode()
        yield "POST", _post(header + tail, f"{BINARY_TYPE};{HEADER_SIZE}{len(header)}")


def _post(body: bytes, content_type: str) -> bytes:
    head = f"Content-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return f"POST /invocations HTTP/1.1\r\nHost: x\r\n{head}".encode() + body


def hostile_loads(seed: int, count: int) -> Iterator[tuple[str, bytes]]:
    """Requests to load a model that is nowhere, spoiled too; none may succeed."""
    draw = random.Random(seed)
    for number in range(count):
        document: dict[str, Any] = {"model_name": f"x{number}", "url": draw.choice(NOWHERE)}
        if draw.random() < 0.7:
            _spoil(draw, document)
        body = json.dumps(document).encode()
        body = _bitten(draw, body) if draw.random() < 0.3 else body
        yield (
            "POST",
            b"POST /models HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body,
        )


def _body(draw: random.Random, right: Any) -> tuple[bytes, list[str]]:
    document = copy.deepcopy(right)
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        _spoil(draw, document)
    body = json.dumps(document).encode()
    if draw.random() < 0.3:
        body = _bitten(draw, body)
    kind = draw.choice(TYPES) if draw.random() < 0.4 else JSON_TYPE
    if kind.endswith("="):
        kind += draw.choice((str(len(body)), "0", "-1", "99999999999999", "x", ""))
        body += _tail(draw)
    headers = [f"Content-Type: {kind}"] if kind else []
    if draw.random() < 0.1:
        headers.append(
            "Inference-Header-Content-Length: "
            f"{draw.choice((0, len(body), len(body) - 4, -1, 'x', 10**30))}"
        )
    if draw.random() < 0.15:
        encoding = draw.choice(ENCODINGS)
        headers.append(f"Content-Encoding: {encoding}")
        packed = gzip.compress(body, 1)
        body = (
            draw.choice((body, packed, packed[:-5], packed * 2, packed + b"\0" * 9, b""))
            if draw.random() < 0.9
            else BOMB
        )
    if draw.random() < 0.2:
        headers.append(f"Accept-Encoding: {draw.choice(('gzip', 'gzip;q=0', '*;q=x', ',,,;'))}")
    return body, headers


def _spoil(draw: random.Random, document: Any) -> None:
    """Replaces, removes or repeats one thing somewhere in a document."""
    place = document
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = draw.choice(keys)
        deeper = place[key]
        if (
            not (isinstance(deeper, dict | list) and deeper and draw.random() < 0.7)
            or deeper is DEEP
        ):
            break
        place = deeper
    what = draw.random()
    if what < 0.75:
        chosen = draw.choice(VALUES)
        place[key] = chosen if chosen is DEEP else copy.deepcopy(chosen)
    elif what < 0.9:
        del place[key]
    elif isinstance(place, list):
        place.extend([place[key]] * draw.choice((1, 2, 100)))
    else:
        place[str(draw.choice(VALUES))[:50]] = place[key]


def _bitten(draw: random.Random, body: bytes) -> bytes:
    """Some bytes flipped, cut off or put in."""
    bitten = bytearray(body)
    for _ in range(draw.choice((1, 2, 8))):
        place = draw.randrange(len(bitten) + 1)
        what = draw.random()
        if what < 0.4 and place < len(bitten):
            bitten[place] = draw.randrange(256)
        elif what < 0.7:
            bitten[place:place] = draw.randbytes(draw.choice((1, 4, 30)))
        else:
            del bitten[place:]
    return bytes(bitten)


def _tail(draw: random.Random) -> bytes:
    text = draw.choice((b"a", b"\xff\xfe", b""))
    return draw.choice(
        (
            b"",
            struct.pack("<I", len(text)) + text,
            b"\xff\xff\xff\xff",
            draw.randbytes(40),
            b"\0" * 4000,
        )
    )


VALID = (
    b"POST /invocations HTTP/1.1\r\nHost: x\r\nContent-Type: "
    b"application/json\r\nContent-Length: 21\r\n\r\n"
) + b'{"inputs": ["a cat"]}'
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"
FRAMINGS = (
    "Content-Length: 4\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 4",
    "Content-Length: 0\r\nContent-Length: 44", "Content-Length: 0, 44", "Content-Length: +4",
    "Content-Length: 0x4",
    "Content-Length: -1", "Content-Length: 4 4", "Content-Length : 4",
    "Content-Length: 99999999999999999999999",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", "Transfer-Encoding: xchunked",
    "Transfer-Encoding : chunked",
    "Transfer-Encoding: gzip, chunked", "Transfer-Encoding:\tchunked, x", "X: a\r\n b", "X: a\x00b",
    "X\x00: a",
    ": a", "X", "X: a\rb",
)  # fmt: skip
"""Headers that two servers could read differently: each is refused, and nothing after it is read.
"""


def smuggling_attempts() -> Iterator[bytes]:
    """Requests whose end is disputed, each with another request behind."""
    for framing in FRAMINGS:
        for body in (b"", b"0\r\n\r\n", b"4\r\nabcd\r\n0\r\n\r\n"):
            yield (
                b"POST /invocations HTTP/1.1\r\nHost: x\r\n"
                + framing.encode("latin-1")
                + b"\r\n\r\n"
                + body
                + SMUGGLED
            )
    for line in (
        b"GET / HTTP/2.0",
        b"GET / HTTP/1.10",
        b"GET / HTTQ/1.1",
        b"G\x00T / HTTP/1.1",
        b"GET /\x80 HTTP/1.1",
        b"get / HTTP/1.1",
    ):
        yield line + b"\r\nHost: x\r\n\r\n" + SMUGGLED


def wire_noise(seed: int, count: int) -> Iterator[bytes]:
    """Bytes that may or may not be requests."""
    draw = random.Random(seed)
    chunked = b"POST /invocations HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    makers = (
        lambda: draw.randbytes(draw.choice((1, 10, 1000, 70_000))),
        lambda: _bitten(draw, VALID),
        lambda: _bitten(draw, VALID * 3),
        lambda: VALID[: draw.randrange(len(VALID))],
        lambda: VALID.replace(
            b"21", str(draw.choice((0, 20, 22, 10**5, 2 * 10**6, 10**18))).encode(), 1
        ),
        lambda: VALID * draw.choice((2, 20, 200)),
        lambda: (
            chunked
            + draw.choice(
                (
                    b"5\r\nabc",
                    b"fffffffffff\r\n",
                    b"zz\r\n",
                    b"1\r\na\r\n" * 3000 + b"0\r\n\r\n",
                    b"0\r\nA: b\r\n\r\n",
                )
            )
        ),
        lambda: chunked + b"0\r\n" + b"A: b\r\n" * 9000,
        lambda: b"GET /" + b"a" * draw.choice((100, 20_000, 200_000)) + b" HTTP/1.1\r\n\r\n",
        lambda: b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * draw.choice((10, 1000, 20_000)) + b"\r\n",
        lambda: (
            b"POST /invocations HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n"
            % draw.choice((0, 5, 10**9))
        ),
        lambda: (
            b"GET /ping HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            + draw.randbytes(20)
        ),
        lambda: b"CONNECT x:1 HTTP/1.1\r\n\r\n" + draw.randbytes(20),
        lambda: b"\r\n" * draw.choice((1, 1000)),
    )
    for _ in range(count):
        yield draw.choice(makers)()
