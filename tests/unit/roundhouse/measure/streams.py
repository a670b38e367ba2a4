"""Streamed answers of OpenAI's schema as vLLM sends them, and a server of them."""

from __future__ import annotations

import json
import struct
import zlib

from tests.unit.roundhouse.measure.answering import Answer

ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def chat_chunk(text="a", *, last=False) -> dict:
    reason = "length" if last else None
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": reason}]}


def usage(prompt=10, output=3) -> dict:
    return {"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": output}}


def event(document) -> bytes:
    text = document if isinstance(document, str) else json.dumps(document)
    return f"data: {text}\n\n".encode()


def stream(*documents) -> bytes:
    return b"".join(map(event, documents))


def whole(prompt=10, output=3) -> bytes:
    """A whole answer, as vLLM's chat gives it."""
    tokens = [chat_chunk()] * (output - 1)
    return stream(ROLE, *tokens, chat_chunk(last=True), usage(prompt, output), "[DONE]")


def answer(data: bytes) -> Answer:
    return Answer(raw=HEAD + data)


def frame(payload: bytes, **headers: str) -> bytes:
    """One message of AWS's event stream: lengths, headers of strings, payload, two CRCs."""
    names = {":message-type": "event", ":event-type": "PayloadPart"}
    names |= {f":{name.replace('_', '-')}": value for name, value in headers.items()}
    block = b"".join(
        struct.pack(">B", len(name)) + name.encode() + b"\x07"
        + struct.pack(">H", len(value)) + value.encode()
        for name, value in names.items()
    )  # fmt: skip
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    prelude += struct.pack(">I", zlib.crc32(prelude))
    message = prelude + block + payload
    return message + struct.pack(">I", zlib.crc32(message))
