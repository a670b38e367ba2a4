"""Compressed answers; compressed requests are in test_routes."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc

import pytest

from container.server.http.inference import (
    COMPRESSED_FROM_BYTES,
    accepts_gzip,
    compressed_response,
    decompressed_body,
)
from container.server.http.messages import Response
from container.server.types import TooLarge

LARGE = b"[" + b"0.123," * (COMPRESSED_FROM_BYTES // 6 + 1) + b"1]"


def answer(body=LARGE, content_type="application/json"):
    return Response(200, body, content_type)


def test_large_json_is_compressed_for_clients_that_read_gzip():
    response = asyncio.run(compressed_response(answer(), b"deflate, gzip;q=0.5"))
    assert gzip.decompress(response.body) == LARGE and len(response.body) < len(LARGE) / 2
    assert dict(response.headers)[b"content-encoding"] == b"gzip"


@pytest.mark.parametrize(
    ("response", "accepted"),
    [
        (answer(), b"br"),
        (answer(b"[]"), b"gzip"),
        (answer(content_type="application/octet-stream"), b"gzip"),
    ],
)
def test_every_other_response_stays_as_it_is(response, accepted):
    assert asyncio.run(compressed_response(response, accepted)) is response


@pytest.mark.parametrize("accepted", [b"gzip", b"GZIP;q=1.0", b"*", b"br, x-gzip"])
def test_client_reads_gzip(accepted):
    assert accepts_gzip(accepted)


@pytest.mark.parametrize("accepted", [b"gzip;q=0", b"gzip; q=0.000", b"gzipped", b""])
def test_client_does_not_read_gzip(accepted):
    assert not accepts_gzip(accepted)


def test_refuses_a_bomb_without_inflating_it():
    bomb = gzip.compress(bytes(50_000_000), 9)
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match="more than 1000 bytes once unpacked"):
            asyncio.run(decompressed_body(bomb, b"gzip", 1000))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
