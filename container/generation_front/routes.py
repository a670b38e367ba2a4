"""The paths of a text generator; every other path of vLLM's is refused."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager, suppress
from http import HTTPStatus

from aiohttp.http import StreamWriter
from aiohttp.web import BaseRequest, RequestPayloadError, Response, StreamResponse

from container.generation_front.admission import Admission, Flight, FrontMetrics
from container.generation_front.events import EventRelay, error_document
from container.generation_front.requests import (
    CHAT,
    COMPLETION,
    INVOCATIONS,
    JSON_TYPE,
    EngineRequest,
    checked_request,
)
from container.generation_front.settings import EngineSettings
from container.server.settings import Settings
from container.server.types import (
    DeadlinePassed,
    RequestFault,
    TooLarge,
    TooSlow,
    Unavailable,
    UnknownPath,
    UnsupportedEncoding,
    WrongMethod,
)
from container.server.types import Response as Answer
from container.server.upstream import (
    Upstream,
    UpstreamAnswer,
    UpstreamGone,
    UpstreamRequest,
    mark_seen,
)

MODELS, METRICS, PING, ADAPTERS = "/v1/models", "/metrics", "/ping", "/adapters"
METHODS = {
    PING: ("GET", "HEAD", "POST"),
    INVOCATIONS: ("POST",),
    CHAT: ("POST",),
    COMPLETION: ("POST",),
    MODELS: ("GET",),
    METRICS: ("GET",),
}
ADAPTER_PATH = re.compile(r"/adapters(?:/([A-Za-z0-9][A-Za-z0-9._-]{0,255}))?")
ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"
CUSTOM_HEADER = "X-Amzn-SageMaker-Custom-Attributes"
SESSION_HEADER = "X-Amzn-SageMaker-Session-Id"
INLINE_BYTES = 64 * 1024
"""Bodies up to this much are checked on the event loop."""
TURNS, TURN_SECONDS = 16, 0.05
"""Requests that the engine is to begin at once, and how long each is waited for. Of hundreds that
come together the first ones go ahead: all at the same pace, the first would begin with the last."""
PING_SECONDS = 1.5
"""SageMaker waits 2 s for the answer to /ping."""
PROOF_SECONDS = 10.0
"""So long after the engine's last event it counts as healthy, though it is late for /ping."""
READER_SECONDS, UNREAD_BYTES = 60.0, 64 * 1024
"""Longest that a client may leave so much of an answer unread; asyncio's own bound of it."""
LOAD_SECONDS = 300.0
"""Longest that an adapter may take to load."""
STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
LOST = "The engine ended before the answer did; the answer is not whole."


class Routes:
    """Answers requests by asking the engine; the handler of aiohttp's server."""

    def __init__(
        self,
        engine: Upstream,
        settings: Settings,
        engine_settings: EngineSettings,
        failed: Callable[[BaseException], None],
        reader_seconds: float = READER_SECONDS,
    ) -> None:
        self._engine, self._settings, self._limits = engine, settings, engine_settings
        self._failed, self._reader_seconds = failed, reader_seconds
        self._models = {*engine_settings.models, *engine_settings.adapter_names}
        self._loads = Counter(engine_settings.adapter_names)
        self.metrics = FrontMetrics()
        self.admission = Admission(engine_settings.most_sequences, self.metrics)
        self.not_ready = "The engine is starting."
        """Why /ping is not healthy; empty once the engine is warm."""
        self._changes: set[asyncio.Future[Answer]] = set()
        self._turns = asyncio.Semaphore(TURNS)
        self._proven = float("-inf")

    async def __call__(self, request: BaseRequest) -> StreamResponse:
        """Send the answer of one request."""
        response = await self._respond(request)
        with suppress(ConnectionError):  # which aiohttp meets again, and closes the connection
            async with self._bound_reader(request):
                await response.prepare(request)
                await response.write_eof()
        return response

    async def _respond(self, request: BaseRequest) -> StreamResponse:
        """Return the answer of one request; every fault becomes a response."""
        try:
            return await self._answer(request)
        except RequestFault as fault:
            return fault_response(fault)
        except RequestPayloadError:
            return fault_response(RequestFault("The body does not arrive as its headers say."))
        except (asyncio.CancelledError, ConnectionError):  # the client has left
            raise
        except Exception as fault:
            self._failed(fault)
            return error_response(500, "This server failed on the request; its log says why.")

    async def _answer(self, request: BaseRequest) -> StreamResponse:
        path, method = request.path, request.method
        adapter_path = ADAPTER_PATH.fullmatch(path) if self._limits.adapters else None
        if adapter_path is not None:
            return await self._adapters(request, adapter_path[1])
        if path not in METHODS:
            raise UnknownPath(f"There is no {path[:60]!r} here; known: {', '.join(METHODS)}.")
        if method not in METHODS[path]:
            raise WrongMethod(f"{path} takes {', '.join(METHODS[path])}, not {method[:20]}.")
        if path == PING:
            return await self._ping()
        if path == MODELS:
            return whole_response(await self._ask("GET", path, seconds=PING_SECONDS))
        if path == METRICS:
            return await self._metrics()
        with self.admission.admit() as flight:
            return await self._generate(request, flight)

    async def _ping(self) -> StreamResponse:
        """Return the engine's own health, once it is warm."""
        reason = self.admission.stopping or self.not_ready
        if reason:
            raise Unavailable(reason)
        try:
            answer = await self._ask("GET", PING, seconds=PING_SECONDS)
        except DeadlinePassed:
            if time.monotonic() - self._proven < PROOF_SECONDS:
                return Response()
            raise
        return Response() if answer.status == 200 else whole_response(answer)

    async def _metrics(self) -> StreamResponse:
        """Return the engine's metrics in Prometheus's format, and this server's after them."""
        answer = await self._ask("GET", METRICS)
        if answer.status == 200:
            answer = answer._replace(body=answer.body + self.metrics.exposition())
        return whole_response(answer)

    async def _adapters(self, request: BaseRequest, name: str | None) -> StreamResponse:
        """Load or unload a LoRA adapter, as SageMaker does for an adapter component."""
        if request.method != ("POST" if name is None else "DELETE"):
            raise WrongMethod("POST /adapters loads an adapter, DELETE /adapters/NAME unloads it.")
        with self.admission.admit(sequences=0) as flight:
            body = await self._read_body(request, flight) if name is None else b""
        change = asyncio.ensure_future(self._change_adapters(request.method, request.path, body))
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        change.add_done_callback(mark_seen)
        return whole_response(await asyncio.shield(change))

    async def _ask(
        self, method: str, path: str, body: bytes = b"", seconds: float = LOAD_SECONDS
    ) -> Answer:
        request = UpstreamRequest(method, path, body, JSON_TYPE if body else "")
        return await self._engine.request(request, seconds)

    async def _change_adapters(self, method: str, path: str, body: bytes) -> Answer:
        """Return the engine's answer, and know what it serves since, also where the caller left."""
        answer = await self._ask(method, path, body)
        if method == "POST" and answer.status == 200:
            self._loads[str(json.loads(body)["name"])] += 1
        served = await self._ask("GET", MODELS)
        if served.status == 200:
            rows = json.loads(served.body)["data"]
            self._models = {*self._limits.models, *(str(row["id"]) for row in rows)}
        return answer

    async def _generate(self, request: BaseRequest, flight: Flight) -> StreamResponse:
        try:
            adapter = self._refuse_headers(request)
            body = await self._read_body(request, flight)
            end = time.monotonic() + self._settings.deadline_seconds
            with ExitStack() as held:
                async with self._turns:
                    checked = await self._check(body, request.path, adapter)
                    self.admission.count(flight, checked.sequences)
                    sent = UpstreamRequest("POST", checked.path, checked.body, JSON_TYPE)
                    answer = await self._engine.send(sent)
                    held.callback(answer.release)
                    if checked.streams:
                        await answer.begin_within(TURN_SECONDS)
                if checked.streams:
                    return await self._stream(request, answer, flight)
                async with self._engine.deadline(self._settings.deadline_seconds, end):
                    return whole_response(await answer.read_whole())
        except asyncio.CancelledError:
            reason = flight.take_cut()
            if not reason or flight.has_begun:
                raise
            raise Unavailable(reason) from None

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

    async def _stream(
        self, request: BaseRequest, answer: UpstreamAnswer, flight: Flight
    ) -> StreamResponse:
        """Relay a stream as its events come; a fault before the first is a status of its own."""
        await answer.begin()
        if answer.status != 200:
            return whole_response(await answer.read_whole())
        response = StreamResponse(headers=STREAM_HEADERS)
        flight.has_begun = True
        writer = await response.prepare(request)
        assert isinstance(writer, StreamWriter)
        relay, reason = EventRelay(), LOST
        try:
            await self._relay(request, answer, relay, writer)
        except asyncio.CancelledError:
            reason = flight.take_cut()
            if not reason:
                raise
        last = relay.end(reason)
        if last:
            self.metrics.cut_streams.inc()
        async with self._bound_reader(request):
            await response.write_eof(last)
        return response

    async def _relay(
        self, request: BaseRequest, answer: UpstreamAnswer, relay: EventRelay, writer: StreamWriter
    ) -> None:
        """Write all events that are whole; a client that does not read holds the engine back."""
        while True:
            try:
                chunk = await answer.read()
            except UpstreamGone:
                return
            if not chunk:
                return
            self._proven = time.monotonic()
            events = relay.feed(chunk)
            if events:
                await writer.write(events, drain=False)
                transport = request.transport
                if transport is not None and transport.get_write_buffer_size() > UNREAD_BYTES:
                    async with self._bound_reader(request):
                        await writer.drain()

    @asynccontextmanager
    async def _bound_reader(self, request: BaseRequest) -> AsyncIterator[None]:
        """Bound the wait for a client that reads; who does not loses the connection."""
        try:
            async with asyncio.timeout(self._reader_seconds):
                yield
        except TimeoutError as fault:
            if request.transport is not None:
                request.transport.abort()
            raise ConnectionAbortedError("The client does not read.") from fault

    def _refuse_headers(self, request: BaseRequest) -> str | None:
        """Return SageMaker's adapter of a request, or raise RequestFault for other headers."""
        kind = request.content_type if "Content-Type" in request.headers else "none"
        if kind != JSON_TYPE:
            raise RequestFault(f"Content-Type is {kind[:60]!r}; it must be {JSON_TYPE}.")
        if "Content-Encoding" in request.headers:
            raise UnsupportedEncoding("Content-Encoding is set; bodies are read uncompressed only.")
        if "route=" in request.headers.get(CUSTOM_HEADER, "").replace(" ", "").lower():
            raise RequestFault(f"{CUSTOM_HEADER} asks for another route, which is not taken here.")
        if SESSION_HEADER in request.headers:
            raise RequestFault("Sessions are off here; send the whole chat with each request.")
        return request.headers.get(ADAPTER_HEADER)

    async def _read_body(self, request: BaseRequest, flight: Flight) -> bytes:
        """Return a body within its limits of bytes and seconds. Raises RequestFault."""
        most, seconds = self._settings.max_body_bytes, self._settings.request_seconds
        length, chunks, size = request.content_length, [], 0
        too_large = TooLarge(f"The body may have {most} bytes; this one has more.")
        if length is not None and length > most:
            raise too_large
        try:
            async with asyncio.timeout(seconds):
                while chunk := await request.content.readany():
                    size += len(chunk)
                    if size > most:
                        raise too_large
                    self.admission.hold(flight, len(chunk))
                    chunks.append(chunk)
        except TimeoutError as fault:
            raise TooSlow(f"The body did not arrive within {seconds} seconds.") from fault
        return b"".join(chunks)


def whole_response(answer: Answer) -> Response:
    """Return an answer of the engine; one that it is too busy for says when to come back."""
    headers = {"Content-Type": answer.content_type or JSON_TYPE}
    if answer.status == 503:
        headers["Retry-After"] = str(Unavailable.retry_after_seconds)
    return Response(status=answer.status, body=answer.body, headers=headers)


def fault_response(fault: RequestFault) -> Response:
    """Return a refusal in OpenAI's shape."""
    retry = fault.retry_after_seconds
    headers = {} if retry is None else {"Retry-After": str(retry)}
    return error_response(fault.status, str(fault), headers)


def error_response(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    kind = HTTPStatus(status).phrase.replace(" ", "") + "Error"
    body = error_document(sentence, kind, status)
    return Response(status=status, body=body, content_type=JSON_TYPE, headers=headers)
