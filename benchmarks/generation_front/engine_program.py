"""An engine as vLLM's server is seen from before it: each step every stream gets an event.

`python engine_program.py STEP_SECONDS EVENTS`: it listens on SM_VLLM_PORT, answers each POST with a
stream of so many events, and `GET /v1/models` with the monotonic times at which requests came.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Any

import uvloop

EVENT = b'data: {"id":"cmpl-0123456789abcdef0123456789abcdef","object":"text_completion",'
EVENT += (
    b'"created":1700000000,"model":"chat","choices":[{"index":0,"text":" token","logprobs":null,'
)
EVENT += b'"finish_reason":null,"stop_reason":null}]}\n\n'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
HEAD += b"transfer-encoding: chunked\r\n\r\n"
LAST = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n"
CHUNK = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)


class Steps:
    """The streams that are answered, and when each of all requests came."""

    def __init__(self, events: int) -> None:
        self.events, self.times = events, list[float]()
        self.left: dict[EngineProtocol, int] = {}

    async def run(self, seconds: float) -> None:
        """Send an event to each stream every so many seconds."""
        while True:
            await asyncio.sleep(seconds)
            for stream in tuple(self.left):
                self.left[stream] -= 1
                is_last = not self.left[stream]
                stream.transport.write(CHUNK + LAST if is_last else CHUNK)
                if is_last:
                    del self.left[stream]


class EngineProtocol(asyncio.Protocol):
    """One connection."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.buffer = steps, b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def connection_lost(self, fault: Exception | None) -> None:
        self.steps.left.pop(self, None)

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        head, found, body = self.buffer.partition(b"\r\n\r\n")
        words = head.lower().split(b"content-length: ")
        if not found or (len(words) > 1 and len(body) < int(words[1].split(b"\r\n")[0])):
            return
        self.buffer = b""
        if head.startswith(b"GET"):
            answer = json.dumps({"data": [], "times": self.steps.times}).encode()
            start = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
            self.transport.write(start + b"content-length: %d\r\n\r\n%b" % (len(answer), answer))
        elif b'"stream":true' not in body.replace(b" ", b""):
            self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
        else:
            self.steps.times.append(time.monotonic())
            self.transport.write(HEAD)
            self.steps.left[self] = self.steps.events


async def serve(step_seconds: float, events: int) -> None:
    """Listen until it is ended."""
    steps, loop = Steps(events), asyncio.get_running_loop()
    host, port = os.environ["SM_VLLM_HOST"], int(os.environ["SM_VLLM_PORT"])
    server = await loop.create_server(lambda: EngineProtocol(steps), host, port, backlog=2048)
    async with server:
        await steps.run(step_seconds)


if __name__ == "__main__":
    uvloop.run(serve(float(sys.argv[1]), int(sys.argv[2])))
