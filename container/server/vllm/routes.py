"""The paths of a text generator; every other path of vLLM's is refused."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from contextlib import ExitStack
from functools import partial

from container.server.http.dispatch import (
    Route,
    Stages,
    dispatch_by_path,
    refuse_encoding,
)
from container.server.http.messages import Reply, Request, Response, Send, StreamedResponse
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.types import JSON_TYPE, DeadlinePassed, RequestFault, Unavailable
from container.server.upstream import (
    Upstream,
    UpstreamAnswer,
    UpstreamGone,
    UpstreamRequest,
    mark_seen,
)
from container.server.vllm.admission import Admission, Flight, FrontMetrics
from container.server.vllm.events import EventRelay, error_body
from container.server.vllm.requests import (
    CHAT,
    COMPLETION,
    INVOCATIONS,
    EngineRequest,
    checked_request,
)
from container.server.vllm.settings import EngineSettings

MODELS, METRICS, PING = "/v1/models", "/metrics", "/ping"
ADAPTER_PATH = re.compile(r"/adapters(?:/([A-Za-z0-9][A-Za-z0-9._-]{0,255}))?")
ADAPTER_HEADER = b"x-amzn-sagemaker-adapter-identifier"
CUSTOM_HEADER = b"x-amzn-sagemaker-custom-attributes"
SESSION_HEADER = b"x-amzn-sagemaker-session-id"
INLINE_BYTES = 64 * 1024
"""Bodies up to this much are checked on the event loop."""
TURNS, TURN_SECONDS = 16, 0.05
"""Requests that the engine is to begin at once, and how long each is waited for. Of hundreds that
come together the first ones go ahead: all at the same pace, the first would begin with the last."""
PING_SECONDS = 1.5
"""SageMaker waits 2 s for the answer to /ping."""
PROOF_SECONDS = 10.0
"""So long after the engine's last event it counts as healthy, though it is late for /ping."""
LOAD_SECONDS = 300.0
"""Longest that an adapter may take to load."""
EVENTS_TYPE = "text/event-stream; charset=utf-8"
STREAM_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
HEALTHY = Response(200, b"", JSON_TYPE)
LOST = "The engine ended before the answer did; the answer is not whole."


class Routes:
    """Answers requests by asking the engine; an Application of the HTTP server."""

    def __init__(
        self,
        engine: Upstream,
        settings: Settings,
        engine_settings: EngineSettings,
        log: FailureLog,
    ) -> None:
        self._engine, self._limits = engine, engine_settings
        self._deadline_seconds = settings.deadline_seconds
        self._models = {engine_settings.model}
        self._loads: Counter[str] = Counter()
        self.metrics = FrontMetrics()
        self.admission = Admission(engine_settings.most_sequences, self.metrics)
        self.not_ready = "The engine is starting."
        """Why /ping is not healthy; empty once the engine is warm."""
        self._changes: set[asyncio.Future[Response]] = set()
        self._turns = asyncio.Semaphore(TURNS)
        self._proven = float("-inf")
        generate = Route("infer", {"POST": self._generate})
        self._routes = {
            PING: Route("health", dict.fromkeys(("GET", "HEAD", "POST"), self._ping)),
            **dict.fromkeys((INVOCATIONS, CHAT, COMPLETION), generate),
            MODELS: Route("models", {"GET": self._list}),
            METRICS: Route("metrics", {"GET": self._metrics_text}),
        }
        self._dispatch = dispatch_by_path(
            self._route_of,
            elsewhere=f"known: {', '.join(self._routes)}.",
            log=log,
            error_body=error_body,
        )

    async def __call__(self, request: Request) -> Reply:
        """Return the answer of one request; every fault becomes a response."""
        return await self._dispatch(request)

    def _route_of(self, path: str) -> Route | None:
        adapter = ADAPTER_PATH.fullmatch(path) if self._limits.adapters else None
        if adapter is None:
            return self._routes.get(path)
        return Route("models", {"POST" if adapter[1] is None else "DELETE": self._adapters})

    async def _ping(self, request: Request, stages: Stages) -> Response:
        """Return the engine's own health, once it is warm."""
        reason = self.admission.stopping or self.not_ready
        if reason:
            raise Unavailable(reason)
        try:
            answer = await self._ask("GET", PING, seconds=PING_SECONDS)
        except DeadlinePassed:
            if time.monotonic() - self._proven < PROOF_SECONDS:
                return HEALTHY
            raise
        return HEALTHY if answer.status == 200 else passed_on(answer)

    async def _list(self, request: Request, stages: Stages) -> Response:
        return passed_on(await self._ask("GET", MODELS, seconds=PING_SECONDS))

    async def _metrics_text(self, request: Request, stages: Stages) -> Response:
        """Return the engine's metrics in Prometheus's format, and this server's after them."""
        answer = await self._ask("GET", METRICS)
        if answer.status == 200:
            answer = answer._replace(body=answer.body + self.metrics.exposition())
        return passed_on(answer)

    async def _adapters(self, request: Request, stages: Stages) -> Response:
        """Load or unload a LoRA adapter, as SageMaker does for an adapter component."""
        self.admission.refuse_stopping()
        body = bytes(request.body) if request.method == "POST" else b""
        change = asyncio.ensure_future(self._change_adapters(request.method, request.path, body))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        change.add_done_callback(mark_seen)
        return passed_on(await asyncio.shield(change))

    async def _ask(
        self, method: str, path: str, body: bytes = b"", seconds: float = LOAD_SECONDS
    ) -> Response:
        request = UpstreamRequest(method, path, body, JSON_TYPE if body else "")
        return await self._engine.request(request, seconds)

    async def _change_adapters(self, method: str, path: str, body: bytes) -> Response:
        """Return the engine's answer, and know what it serves since, also where the caller left."""
        answer = await self._ask(method, path, body)
        if method == "POST" and answer.status == 200:
            self._loads[str(json.loads(body)["name"])] += 1
        served = await self._ask("GET", MODELS)
        if served.status == 200:
            rows = json.loads(served.body)["data"]
            self._models = {self._limits.model, *(str(row["id"]) for row in rows)}
        return answer

    async def _generate(self, request: Request, stages: Stages) -> Reply:
        with ExitStack() as held:
            flight = held.enter_context(self.admission.admit())
            try:
                return await self._send(request, flight, held)
            except asyncio.CancelledError:
                reason = flight.take_cut()
                if not reason:
                    raise
                raise Unavailable(reason) from None

    async def _send(self, request: Request, flight: Flight, held: ExitStack) -> Reply:
        """Return the engine's answer: whole, or a stream, which takes over what is held."""
        adapter = _adapter_of(request)
        end = time.monotonic() + self._deadline_seconds
        async with self._turns:
            checked = await self._check(request.body, request.path, adapter)
            self.admission.count(flight, checked.sequences)
            sent = UpstreamRequest("POST", checked.path, checked.body, JSON_TYPE)
            answer = await self._engine.send(sent)
            held.callback(answer.release)
            if checked.streams:
                await answer.begin_within(TURN_SECONDS)
        if not checked.streams:
            async with self._engine.deadline(self._deadline_seconds, end):
                return passed_on(await answer.read_whole())
        await answer.begin()
        if answer.status != 200:  # a fault before the first event is a status of its own
            return passed_on(await answer.read_whole())
        relay = partial(self._relay, answer, flight, held.pop_all())
        return StreamedResponse(EVENTS_TYPE, STREAM_HEADERS, relay)

    async def _check(self, body: bytes, path: str, adapter: str | None) -> EngineRequest:
        """Return the engine's request, for the adapters as they are when it is sent."""
        while True:
            loads = dict(self._loads)
            arguments = (body, path, self._limits, frozenset(self._models), adapter, loads)
            if len(body) <= INLINE_BYTES:
                return checked_request(*arguments)
            checked = await asyncio.to_thread(checked_request, *arguments)
            if loads == self._loads:
                return checked

    async def _relay(
        self, answer: UpstreamAnswer, flight: Flight, held: ExitStack, send: Send
    ) -> None:
        """Send all events that are whole, and an honest end.

        A client that does not read holds the engine back.
        """
        relay, reason = EventRelay(), LOST
        with held:
            try:
                while chunk := await answer.read():
                    self._proven = time.monotonic()
                    if events := relay.feed(chunk):
                        await send(events)
            except UpstreamGone:
                pass
            except asyncio.CancelledError:
                reason = flight.take_cut()
                if not reason:  # the client has left
                    raise
            if last := relay.end(reason):
                self.metrics.cut_streams.inc()
                await send(last)


def _adapter_of(request: Request) -> str | None:
    """Return SageMaker's adapter of a request, or raise RequestFault for other headers."""
    headers = {name: value.decode("latin-1") for name, value in request.headers.items()}
    kind = headers.get(b"content-type", "none").partition(";")[0].strip().lower()
    if kind != JSON_TYPE:
        raise RequestFault(f"Content-Type is {kind[:60]!r}; it must be {JSON_TYPE}.")
    refuse_encoding(request)
    if "route=" in headers.get(CUSTOM_HEADER, "").replace(" ", "").lower():
        name = "X-Amzn-SageMaker-Custom-Attributes"
        raise RequestFault(f"{name} asks for another route, which is not taken here.")
    if SESSION_HEADER in headers:
        raise RequestFault("Sessions are off here; send the whole chat with each request.")
    return headers.get(ADAPTER_HEADER)


def passed_on(answer: Response) -> Response:
    """Return an answer of the engine; one that it is too busy for says when to come back."""
    retry = ((b"retry-after", b"%d" % (Unavailable.retry_after_seconds or 0)),)
    headers = retry if answer.status == 503 else ()
    return Response(answer.status, answer.body, answer.content_type or JSON_TYPE, headers)
