"""vLLM behind this server: its command, its variables, its warm-up, and its last streams."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from container.server.http.messages import HttpLimits
from container.server.http.server import HttpServer
from container.server.process import say
from container.server.settings import Settings, process_environment
from container.server.supervisor import Backend, free_ports, run_backend
from container.server.telemetry.failure_log import FailureLog
from container.server.types import JSON_TYPE, RequestFault, first_line
from container.server.upstream import Upstream, UpstreamRequest
from container.server.vllm.events import error_body
from container.server.vllm.requests import CHAT, COMPLETION
from container.server.vllm.routes import Routes
from container.server.vllm.settings import EngineSettings, read_engine_settings

LAST_SECONDS = 1.0
"""Of the 30 s between SageMaker's SIGTERM and SIGKILL, 25 drain; this and `stop_seconds` follow."""
MOST_HELD_BYTES = 1 << 28
"""Of bodies in memory at once."""
READER_SECONDS = 60.0
"""Longest that a client may leave 64 KiB of an answer unread."""


def main(arguments: Sequence[str]) -> int:
    """Run the engine's command, which follows the word `vllm`, and return the exit code."""
    return run_backend(arguments, "the engine's command and its own", Engine)


def limits_of(settings: Settings) -> HttpLimits:
    """Return the limits of a server whose answers are streams."""
    limits = HttpLimits.of(settings)
    return replace(limits, unread_seconds=READER_SECONDS, held_bytes=MOST_HELD_BYTES)


class Engine(Backend):
    """vLLM, behind AWS's entry point, whose shell never gets SIGTERM before the streams end."""

    name = "The engine"
    stop_seconds, ended_drain_seconds = 3.0, 0.0
    is_session = True
    error_body = staticmethod(error_body)

    def __init__(self, command: Sequence[str], settings: Settings, log: FailureLog) -> None:
        (port,), variables = free_ports(1), process_environment()
        self.command, self._settings = command, read_engine_settings(variables)
        # It listens on the loopback device, where only we ask.
        self.environment = {**variables, "SM_VLLM_HOST": "127.0.0.1", "SM_VLLM_PORT": str(port)}
        engine = Upstream(port, self.name)
        self.upstreams = (engine,)
        self.application = self._routes = Routes(engine, settings, self._settings, log)
        self.limits = limits_of(settings)
        self.memory_full = self._routes.metrics.full_memory.inc

    def refuse_all(self, reason: str) -> None:
        self._routes.admission.stopping = reason

    async def watch(self) -> int:
        """Warm the engine up; it says itself whether it is healthy."""
        try:
            await warm_up(self.upstreams[0], self._settings, say)
            self._routes.not_ready = ""
        except Exception as fault:
            self._routes.not_ready = f"The warm-up failed: {first_line(fault)}."
        await asyncio.Event().wait()
        return 0

    async def drain(self, server: HttpServer, seconds: float) -> None:
        """Let the streams in flight end; what is asked meanwhile is answered 503."""
        cut = await self._routes.admission.drain(seconds, LAST_SECONDS)
        await server.drain(LAST_SECONDS)
        say(f"Drained; {cut} requests were cut." if cut else "Drained.")


SECONDS = 60.0
"""Longest that the warm-up takes; what is left of it is left out."""
POLL_SECONDS = 0.25
PROMPT_TOKENS, ANSWER_TOKENS = (16, 256, 2048), 4
ANSWERS = 4
TOKEN = 1
"""Of the prompts: every vocabulary has it."""


def warm_up_requests(settings: EngineSettings) -> Iterator[tuple[str, bytes]]:
    """Yield path and body: prompts of growing length, several sampled answers at once, a chat."""
    model, most = settings.model, settings.max_model_len
    sampled = {"temperature": 1.0, "top_p": 0.9, "top_k": 40}
    for tokens in PROMPT_TOKENS:
        if tokens == PROMPT_TOKENS[0] or (most is not None and tokens + ANSWER_TOKENS <= most):
            body = {"model": model, "prompt": [TOKEN] * tokens, "max_tokens": ANSWER_TOKENS}
            yield COMPLETION, json.dumps({**body, "temperature": 0}).encode()
            if tokens == PROMPT_TOKENS[0] and settings.most_sequences >= ANSWERS:
                yield COMPLETION, json.dumps({**body, **sampled, "n": ANSWERS}).encode()
    chat = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    yield CHAT, json.dumps({**chat, "max_tokens": ANSWER_TOKENS}).encode()


async def warm_up(engine: Upstream, settings: EngineSettings, say: Callable[[str], None]) -> None:
    """Return once the engine is healthy and has answered the requests, as many as fit the time.

    An engine that refuses the first one serves nobody: it is asked again until it answers.
    """
    while await _status(engine, "GET", "/ping", b"", SECONDS) != 200:
        await asyncio.sleep(POLL_SECONDS)
    begin, answered = time.monotonic(), 0
    for path, body in warm_up_requests(settings):
        status = await _status(engine, "POST", path, body, _remaining(begin))
        while not answered and status != 200:
            say(f"The warm-up's first request was answered {status}; it is sent again.")
            await asyncio.sleep(1)
            status = await _status(engine, "POST", path, body, SECONDS)
        answered += status == 200
        if not _remaining(begin):
            break
    say(f"Warm: {answered} requests in {time.monotonic() - begin:.1f} s.")


async def _status(engine: Upstream, method: str, path: str, body: bytes, seconds: float) -> int:
    """Return the engine's status; that of our own refusal where it gives none in time."""
    try:
        request = UpstreamRequest(method, path, body, JSON_TYPE if body else "")
        return (await engine.request(request, seconds)).status
    except RequestFault as fault:
        return fault.status


def _remaining(begin: float) -> float:
    return max(0.0, begin + SECONDS - time.monotonic())
