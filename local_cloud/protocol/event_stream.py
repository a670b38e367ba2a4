"""Messages of `application/vnd.amazon.eventstream`, as SageMaker Runtime sends them.

A message is two lengths and their checksum, headers, a payload, and the checksum of all. Source:
Smithy 2.0, "Amazon Event Stream Specification".
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator, Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"
STRING = 7
"""The type of a header whose value is text."""
PRELUDE_BYTES, CHECKSUM_BYTES = 12, 4


def payload_part(content: bytes) -> bytes:
    """Return an event that carries a part of a container's body."""
    headers = {":event-type": "PayloadPart", ":content-type": "application/octet-stream"}
    return message({**headers, ":message-type": "event"}, content)


def stream_exception(kind: str, **fields: str) -> bytes:
    """Return the exception that ends a stream."""
    headers = {":exception-type": kind, ":content-type": "application/json"}
    return message({**headers, ":message-type": "exception"}, json.dumps(fields).encode())


def message(headers: Mapping[str, str], payload: bytes) -> bytes:
    """Return one message."""
    encoded = b"".join(
        struct.pack("!B", len(name))
        + name.encode()
        + struct.pack("!BH", STRING, len(value))
        + value
        for name, value in ((name, text.encode()) for name, text in headers.items())
    )
    total = PRELUDE_BYTES + len(encoded) + len(payload) + CHECKSUM_BYTES
    lengths = struct.pack("!II", total, len(encoded))
    content = lengths + struct.pack("!I", zlib.crc32(lengths)) + encoded + payload
    return content + struct.pack("!I", zlib.crc32(content))


def uneven_parts(chunk: bytes) -> Iterator[bytes]:
    """Yield a chunk in two parts: inside its first character of several bytes, or in its middle.

    AWS promises no boundaries, so a client that relies on whole lines must fail here.
    """
    wide = next((position for position, byte in enumerate(chunk) if byte >= 0xC0), None)
    cut = len(chunk) // 2 if wide is None else wide + 1
    yield from filter(None, (chunk[:cut], chunk[cut:]))
