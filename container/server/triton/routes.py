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
from container.server.process import trim_memory
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.triton.health import (
    Health,
    ModelHealth,
    health_request,
    input_tables,
    status_of,
)
from container.server.triton.kserve_request import NO_TABLES, Tables, checked_request
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
        if self._health.fault:
            raise Unavailable(f"A model cannot answer: {self._health.fault}.")
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
            checked, kind = await asyncio.to_thread(_check_large, body, kind, tables)
        sent = UpstreamRequest("POST", request.path, checked, kind, passed)
        answer = await self._pass_on(sent, self._deadline_seconds)
        status = status_of(answer)
        self._health.observe(name, status)
        if status != answer.status:
            raise Unavailable("The model's Python process did not answer in time; try again.")
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
        body, headers = orjson.dumps({"model_name": name, "url": url}), _passed(request)
        load = UpstreamRequest("POST", "/models", body, JSON_TYPE, headers)
        answer = await self._pass_on(load, LOAD_SECONDS)
        if answer.status == 200:
            self._health.add(watched_model(Path(url), name, headers))
        return answer

    async def _unload(self, name: str, request: Request, stages: Stages) -> Response:
        model = await self._health.remove(name)
        unload = UpstreamRequest("DELETE", f"/models/{name}", headers=_passed(request))
        answer = await self._pass_on(unload, LOAD_SECONDS)
        if answer.status not in (200, 404) and model is not None:
            self._health.add(model)
        return answer

    async def _pass_on(self, request: UpstreamRequest, seconds: float = 60.0) -> Response:
        """Return Triton's answer; Triton goes on with a request whose client has left."""
        asking = asyncio.ensure_future(self._triton.request(request))
        asking.add_done_callback(mark_seen)
        try:
            return await asyncio.wait_for(asyncio.shield(asking), seconds)
        except TimeoutError as fault:
            raise DeadlinePassed(f"Triton did not answer within {seconds:g} seconds.") from fault


def _check_large(body: bytes, kind: str, tables: Tables) -> tuple[bytes, str]:
    """Return the checked request, and the memory of a large one to the system."""
    try:
        return checked_request(body, kind, tables)
    finally:
        if len(body) >= TRIM_BYTES:
            trim_memory()


def watched_model(
    archive: Path, name: str = SINGLE, headers: tuple[tuple[bytes, bytes], ...] = ()
) -> ModelHealth:
    """Return a model as its health is watched; `headers` are of the request that has loaded it."""
    probe, path = health_request(archive), f"/models/{name}/invoke" if name else "/invocations"
    request = None if probe is None else UpstreamRequest("POST", path, *probe, headers)
    return ModelHealth(name=name, archive=archive, request=request, tables=input_tables(archive))


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
