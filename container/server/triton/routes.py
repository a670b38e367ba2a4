"""The paths of Triton's SageMaker port, each request checked before Triton reads it."""

from __future__ import annotations

import asyncio
import re
from functools import partial
from pathlib import Path

import orjson

from container.server.codecs.envelope import excerpt, read_document
from container.server.http.dispatch import (
    Answer,
    Route,
    Stages,
    content_type,
    dispatch_by_path,
    refuse_encoding,
)
from container.server.http.messages import Reply, Request, Response, fault_response
from container.server.process import MemoryTrim
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.triton.health import Health, ModelHealth
from container.server.triton.kserve_request import NO_TABLES, checked_request
from container.server.triton.probe import health_request, input_tables
from container.server.types import (
    JSON_TYPE,
    DeadlinePassed,
    RequestFault,
    TooLarge,
    Unavailable,
    UnknownPath,
)
from container.server.upstream import Upstream, UpstreamRequest, mark_seen

MODEL_PATH = re.compile(r"/models/([A-Za-z0-9._-]{1,256})(/invoke)?")
TARGET_MODEL = b"x-amzn-sagemaker-target-model"
TARGET = re.compile(rb"[\x21-\x7e]{1,1024}")
PASSED_PREFIX = b"x-amzn-"
INLINE_BYTES = 64 * 1024
"""Bodies up to this much are checked on the event loop, in about a millisecond."""
MOST_WHOLE_BYTES = 2**28
"""Of a body that is one request: this server holds it four times over, and Triton holds it too."""
TRIM_BYTES = 1 << 20
"""So many bytes of bodies leave memory behind that is worth returning."""
LOAD_SECONDS = 420.0
"""Longest that Triton may take to load or unload: it gives up itself after 350."""
BROKEN_UNLOAD_SECONDS = 10.0
"""Longest that it may take to unload a model that cannot answer: it waits for the model's requests,
and all other models wait behind the unloading.
"""
SINGLE = ""
"""The name of the only model in single-model mode, as its health knows it."""


class TritonRoutes:
    """Answers requests by asking Triton; an Application of the HTTP server."""

    def __init__(
        self,
        triton: Upstream,
        health: Health,
        settings: Settings,
        *,
        log: FailureLog,
        metrics: Upstream | None = None,
    ) -> None:
        """`metrics` asks Triton's metrics port; None where Triton has no metrics."""
        self._metrics = metrics
        self._triton, self._health, self._multi_model = triton, health, settings.multi_model
        self._max_bytes = min(settings.max_body_bytes, MOST_WHOLE_BYTES)
        self._deadline_seconds = settings.deadline_seconds
        self._trim = MemoryTrim(TRIM_BYTES)
        load = {"POST": self._load} if self._multi_model else {}
        self._routes = {
            "/ping": Route("health", {"GET": self._ping, "HEAD": self._ping}),
            "/metrics": Route("metrics", {"GET": self._metrics_text}),
            "/invocations": Route("infer", {"POST": partial(self._infer, SINGLE)}),
            "/models": Route("models", {"GET": self._list} | load),
        }
        self._dispatch = dispatch_by_path(
            self._route_of,
            elsewhere="POST /invocations, /models and GET /ping are.",
            log=log,
        )
        self.ending = ""
        """Why this server ends; what it then answers is 503."""

    async def __call__(self, request: Request) -> Reply:
        """Return the answer of one request; every fault becomes a response."""
        if self.ending:
            return fault_response(Unavailable(self.ending))
        return await self._dispatch(request)

    def _route_of(self, path: str) -> Route | None:
        found = MODEL_PATH.fullmatch(path)
        if found is None:
            return self._routes.get(path.removesuffix("/") if path == "/models/" else path)
        name, invokes = found.groups()
        if invokes:
            return Route("infer", {"POST": partial(self._infer, name)})
        methods: dict[str, Answer] = {"GET": self._describe}
        if self._multi_model:
            methods["DELETE"] = partial(self._unload, name)
        return Route("model", methods)

    async def _list(self, request: Request, stages: Stages) -> Response:
        return await self._pass_on(UpstreamRequest("GET", "/models"), LOAD_SECONDS)

    async def _describe(self, request: Request, stages: Stages) -> Response:
        return await self._pass_on(UpstreamRequest("GET", request.path, headers=_passed(request)))

    async def _metrics_text(self, request: Request, stages: Stages) -> Response:
        """Return Triton's metrics in Prometheus's format, where they are on."""
        if self._metrics is None:
            raise UnknownPath("There is no '/metrics' here; Triton's metrics are off.")
        return await self._metrics.request(UpstreamRequest("GET", "/metrics"))

    async def _ping(self, request: Request, stages: Stages) -> Response:
        """Return Triton's own word, unless a model cannot answer."""
        broken = self._health.broken_models()
        if broken:
            raise Unavailable(f"A model cannot answer: {broken[0].broken}.")
        answer = await self._pass_on(UpstreamRequest("GET", "/ping"))
        single = self._health.models.get(SINGLE)
        if answer.status == 200 and single is not None and not single.is_ready:
            raise Unavailable("The model has not yet answered its first health request.")
        return answer

    async def triton_is_ready(self) -> bool:
        """Return True when Triton says that it is: its models are loaded."""
        try:
            return (await self._pass_on(UpstreamRequest("GET", "/ping"))).status == 200
        except RequestFault:
            return False

    async def _infer(self, name: str, request: Request, stages: Stages) -> Response:
        if name and self._multi_model and name not in self._health.models:
            raise UnknownPath(f"There is no model {name!r} here; POST /models loads one.")
        self._health.refuse(name)
        refuse_encoding(request)
        body, most = request.body, self._max_bytes
        self._trim.count(len(body))
        kind, passed = content_type(request), _passed(request)
        model = self._health.models.get(name)
        tables = NO_TABLES if model is None else model.tables
        if len(body) > most:
            raise TooLarge(
                f"The request has {len(body)} bytes, and one request may have {most}; send it in "
                "parts."
            )
        if len(body) <= INLINE_BYTES:
            checked, kind = checked_request(body, kind, tables)
        else:
            checked, kind = await asyncio.to_thread(checked_request, body, kind, tables)
        sent = UpstreamRequest("POST", request.path, checked, kind, passed)
        answer = await self._pass_on(sent, self._deadline_seconds)
        self._health.observe(name, answer.status)
        return answer

    async def _load(self, request: Request, stages: Stages) -> Response:
        document = read_document(request.body)
        name, url = document.get("model_name"), document.get("url")
        if not isinstance(name, str) or not MODEL_PATH.fullmatch(f"/models/{name}"):
            raise RequestFault(
                f'"model_name" is {excerpt(name)}; it must be of letters, digits, ".", "_", "-".'
            )
        if not isinstance(url, str) or not url.startswith("/") or not url.isprintable():
            raise RequestFault(f'"url" is {excerpt(url)}; it must be the path of a folder.')
        headers = _passed(request)
        load = UpstreamRequest(
            "POST", "/models", orjson.dumps({"model_name": name, "url": url}), JSON_TYPE, headers
        )
        answer = await self._pass_on(load, LOAD_SECONDS)
        if answer.status == 200:
            self._health.add(watched_model(Path(url), name, load))
        return answer

    async def _unload(self, name: str, request: Request, stages: Stages) -> Response:
        model = await self._health.remove_unasked(name)
        unload = UpstreamRequest("DELETE", f"/models/{name}", headers=_passed(request))
        answer = await self._pass_on(unload, LOAD_SECONDS)
        if answer.status not in (200, 404) and model is not None:
            self._health.add(model)
        return answer

    async def reload(self, model: ModelHealth) -> str:
        """Unload and load a model that cannot answer; return why that failed, or nothing."""
        assert model.load is not None
        unload = UpstreamRequest("DELETE", f"/models/{model.name}", headers=model.load.headers)
        for request, seconds in ((unload, BROKEN_UNLOAD_SECONDS), (model.load, LOAD_SECONDS)):
            try:
                answer = await self._pass_on(request, seconds)
            except RequestFault as fault:
                return str(fault)
            if answer.status != 200:
                return f"{answer.status} {answer.body[:200].decode(errors='replace')}"
        self._health.remove(model.name)
        self._health.add(watched_model(model.archive, model.name, model.load))
        return ""

    async def _pass_on(self, request: UpstreamRequest, seconds: float = 60.0) -> Response:
        """Return Triton's answer; Triton goes on with a request whose client has left."""
        asking = asyncio.ensure_future(self._triton.request(request))
        asking.add_done_callback(mark_seen)
        try:
            return await asyncio.wait_for(asyncio.shield(asking), seconds)
        except TimeoutError as fault:
            raise DeadlinePassed(f"Triton did not answer within {seconds:g} seconds.") from fault


def watched_model(
    archive: Path, name: str = SINGLE, load: UpstreamRequest | None = None
) -> ModelHealth:
    """Return a model as its health is watched; `load` is the request that has loaded it."""
    probe = health_request(archive)
    request = None
    if probe is not None:
        path = "/invocations" if load is None else f"/models/{name}/invoke"
        request = UpstreamRequest("POST", path, *probe[:2], () if load is None else load.headers)
    is_guess = probe is not None and probe.is_guess
    return ModelHealth(
        name=name,
        archive=archive,
        request=request,
        is_guess=is_guess,
        load=load,
        tables=input_tables(archive),
    )


def _passed(request: Request) -> tuple[tuple[bytes, bytes], ...]:
    """Return SageMaker's own headers, which Triton reads or logs. Raises RequestFault."""
    target = request.headers.get(TARGET_MODEL)
    if target is not None and not TARGET.fullmatch(target):
        raise RequestFault(
            f"X-Amzn-SageMaker-Target-Model is {excerpt(target.decode('latin-1'))}; it must be of "
            "1 to 1024 printable characters without spaces."
        )
    return tuple(
        (name, value) for name, value in request.headers.items() if name.startswith(PASSED_PREFIX)
    )
