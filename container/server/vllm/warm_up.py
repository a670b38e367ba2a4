"""The first requests of an engine, one for each shape, before SageMaker sends it others'.

vLLM compiles and allocates as it meets shapes: the first request of one can take seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator

from container.server.types import JSON_TYPE, RequestFault
from container.server.upstream import Upstream, UpstreamRequest
from container.server.vllm.requests import CHAT, COMPLETION
from container.server.vllm.settings import EngineSettings

SECONDS = 60.0
"""Longest that the warm-up takes; what is left of it is left out."""
POLL_SECONDS = 0.25
PROMPT_TOKENS, ANSWER_TOKENS = (16, 256, 2048), 4
ANSWERS = 4
TOKEN = 1
"""Of the prompts: every vocabulary has it."""


def warm_up_requests(settings: EngineSettings) -> Iterator[tuple[str, bytes]]:
    """Yield path and body: prompts of growing length, several sampled answers at once, a chat."""
    model, most = settings.models[0], settings.max_model_len
    sampled = {"temperature": 1.0, "top_p": 0.9, "top_k": 40}
    for tokens in PROMPT_TOKENS:
        if tokens == PROMPT_TOKENS[0] or (most is not None and tokens + ANSWER_TOKENS <= most):
            body = {"model": model, "prompt": [TOKEN] * tokens, "max_tokens": ANSWER_TOKENS}
            yield COMPLETION, json.dumps({**body, "temperature": 0}).encode()
            if tokens == PROMPT_TOKENS[0] and settings.most_sequences >= ANSWERS:
                yield COMPLETION, json.dumps({**body, **sampled, "n": ANSWERS}).encode()
    chat = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    yield CHAT, json.dumps({**chat, "max_tokens": ANSWER_TOKENS}).encode()


async def warm_up(
    engine: Upstream, settings: EngineSettings, say: Callable[[str], None], seconds: float = SECONDS
) -> None:
    """Return once the engine is healthy and has answered the requests, as many as fit the time.

    An engine that refuses the first one serves nobody: it is asked again until it answers.
    """
    while await _status(engine, "GET", "/ping", b"", seconds) != 200:
        await asyncio.sleep(POLL_SECONDS)
    begin, answered = time.monotonic(), 0
    for path, body in warm_up_requests(settings):
        status = await _status(engine, "POST", path, body, _remaining(begin, seconds))
        while not answered and status != 200:
            say(f"The warm-up's first request was answered {status}; it is sent again.")
            await asyncio.sleep(1)
            status = await _status(engine, "POST", path, body, seconds)
        answered += status == 200
        if not _remaining(begin, seconds):
            break
    say(f"Warm: {answered} requests in {time.monotonic() - begin:.1f} s.")


async def _status(engine: Upstream, method: str, path: str, body: bytes, seconds: float) -> int:
    """Return the engine's status; that of our own refusal where it gives none in time."""
    try:
        request = UpstreamRequest(method, path, body, JSON_TYPE if body else "")
        return (await engine.request(request, seconds)).status
    except RequestFault as fault:
        return fault.status


def _remaining(begin: float, seconds: float) -> float:
    return max(0.0, begin + seconds - time.monotonic())
