"""`python -m benchmarks.h200_generation.programs.streams OPTIONS`: streamed completions.

OPTIONS: JSON of `port`, `path`, `model`, `requests`, `concurrency`, `input`, `output`,
`vocabulary`, `seed`. It prints `ready`, waits for a line of standard input, and keeps
`concurrency` streams open until all requests are answered; with `until` for so many seconds, its
requests again and again, and a client that is refused pauses. The last line of standard output is
the answers as JSON: clock times in seconds (`time.monotonic`, one clock for all processes of a
machine), and every gap between two events of a stream in milliseconds. Standard library only.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.h200_generation.programs.engine import random_prompts

PAUSE_SECONDS = 1.0
END, DONE, EVENT = b"\n\n", b"data: [DONE]", b"data: "


@dataclass
class Answer:
    """One stream: clock times in seconds; `fault` is empty for a complete one."""

    begin: float
    first: float = 0.0
    last: float = 0.0
    tokens: int = 0
    events: int = 0
    fault: str = ""
    is_refused: bool = False
    """Answered 503; `last` is when."""
    gaps_ms: list[float] = field(default_factory=list)


class StreamError(Exception):
    """A stream that is not complete."""


class Refused(Exception):
    """An answer of status 503."""


async def stream(port: int, path: str, body: bytes) -> Answer:
    """Send one request on a connection of its own, and read its events."""
    answer = Answer(begin=time.monotonic())
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n"
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode() + body)
            await _read(reader, answer)
        finally:
            writer.close()
    except Refused:
        answer.last, answer.is_refused = time.monotonic(), True
    except (OSError, ValueError, asyncio.IncompleteReadError, StreamError) as error:
        answer.fault = f"{type(error).__name__}: {error}"[:300]
    return answer


async def _read(reader: asyncio.StreamReader, answer: Answer) -> None:
    headers = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b" 200 " not in headers.split(b"\r\n", 1)[0]:
        rest = await reader.read(500)
        if b" 503 " in headers.split(b"\r\n", 1)[0]:
            raise Refused
        raise StreamError((headers.split(b"\r\n", 1)[0] + b" " + rest).decode(errors="replace"))
    is_chunked = b"transfer-encoding: chunked" in headers
    buffer, is_done, usage = b"", False, b""
    while part := await _part(reader, is_chunked=is_chunked):
        *events, buffer = (buffer + part).split(END)
        now = time.monotonic()
        for event in events:
            if event.startswith(DONE):
                is_done = True
            elif b'"choices":[]' in event:
                usage = event
            elif event.startswith(EVENT) and b'"error"' not in event[:40]:
                _count(answer, now)
            elif event.strip():
                raise StreamError(event.decode(errors="replace"))
    if not is_done:
        raise StreamError("no [DONE]")
    answer.tokens = json.loads(usage.removeprefix(EVENT))["usage"]["completion_tokens"]


async def _part(reader: asyncio.StreamReader, *, is_chunked: bool) -> bytes:
    if not is_chunked:
        return await reader.read(65_536)
    size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
    return (await reader.readexactly(size + 2))[:size]


def _count(answer: Answer, now: float) -> None:
    if answer.events:
        answer.gaps_ms.append(round(1000 * (now - answer.last), 3))
    else:
        answer.first = now
    answer.events += 1
    answer.last = now


async def run(options: dict[str, Any], bodies: list[bytes]) -> list[Answer]:
    """Answer all bodies, so many at once."""
    seconds = options.get("until")
    waiting, answers = iter(bodies if seconds is None else itertools.cycle(bodies)), []
    end = time.monotonic() + (math.inf if seconds is None else seconds)

    async def work() -> None:
        for body in waiting:
            if time.monotonic() > end:
                return
            answers.append(await stream(options["port"], options["path"], body))
            if answers[-1].is_refused:
                await asyncio.sleep(PAUSE_SECONDS)

    await asyncio.gather(*(work() for _ in range(options["concurrency"])))
    return answers


def request_bodies(options: dict[str, Any]) -> list[bytes]:
    """Return the requests, with random prompts."""
    sizes = (options["vocabulary"], options["requests"], options["input"], options["seed"])
    settings = {
        "model": options["model"],
        "max_tokens": options["output"],
        "ignore_eos": True,
        "temperature": 1.0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return [json.dumps({**settings, "prompt": row}).encode() for row in random_prompts(*sizes)]


def main(text: str) -> None:
    """Print the answers of one process's share of a load."""
    options = json.loads(text)
    bodies = request_bodies(options)
    print("ready", flush=True)
    sys.stdin.readline()
    answers = asyncio.run(run(options, bodies))
    print(json.dumps([asdict(answer) for answer in answers]))


if __name__ == "__main__":
    main(*sys.argv[1:])
