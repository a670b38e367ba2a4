"""Dispatches requests by path: those of one model, and those of SageMaker's several models."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from container.server.codecs.envelope import JSON_TYPE, excerpt, json_type, read_document
from container.server.data_plane.multi_model import LoadedModel, LoadedModels
from container.server.data_plane.plane import DataPlane
from container.server.http.inference import infer, refuse_encoding
from container.server.http.messages import (
    Application,
    Request,
    Response,
    fault_response,
    internal_fault_response,
    json_response,
)
from container.server.settings import Settings
from container.server.telemetry.metrics import CONTENT_TYPE, RequestMetrics
from container.server.types import RequestFault, Unavailable, UnknownPath, WrongMethod

Answer = Callable[[Request, dict[str, float]], Awaitable[Response]]
"""Answers a request and writes down the seconds of its stages. Raises RequestFault."""

EMPTY = Response(200, b"", JSON_TYPE)
CLIENT_LEFT = 499
"""The status recorded for a request whose client left before its answer; no client reads it."""
NOT_READY = "The server is not ready: it is loading, draining or its engine fails."

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


class Route(NamedTuple):
    """A path: its `kind` in metrics, its answers by method, and the model that it names."""

    kind: str
    methods: Mapping[str, Answer]
    model: str | None = None


def dispatch_by_path(
    find_route: Callable[[str], Route | None], *, elsewhere: str, observer: RequestMetrics
) -> Application:
    """Return an application that answers by path, and turns every fault into a response.

    `elsewhere` is the sentence for unknown paths.
    """

    async def answer(request: Request) -> Response:
        begun = perf_counter()
        stages: dict[str, float] = {}
        route = find_route(request.path)
        kind, model = ("elsewhere", None) if route is None else (route.kind, route.model)
        method = None if route is None else route.methods.get(request.method)
        try:
            response = (
                _unroutable(route, request, elsewhere)
                if method is None
                else await method(request, stages)
            )
        except RequestFault as fault:
            response = fault_response(fault)
        except asyncio.CancelledError:
            observer.request_over(kind, CLIENT_LEFT, perf_counter() - begun, stages, model=model)
            raise
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # a panic in a library of Rust is no Exception
            observer.request_failed(fault)
            response = internal_fault_response()
        observer.request_over(kind, response.status, perf_counter() - begun, stages, model=model)
        return response

    return answer


def _unroutable(route: Route | None, request: Request, elsewhere: str) -> Response:
    path = request.path[:60]
    if route is None:
        return fault_response(UnknownPath(f"There is no {path!r} here; {elsewhere}"))
    allowed = ", ".join(route.methods)
    response = fault_response(WrongMethod(f"{path} takes {allowed}, not {request.method}."))
    return response._replace(headers=((b"allow", allowed.encode()),))


def model_application(
    plane: DataPlane, settings: Settings, observer: RequestMetrics
) -> Application:
    """Return the HTTP application of one model."""

    async def ready(request: Request, stages: dict[str, float]) -> Response:
        if not plane.ready:
            raise Unavailable(NOT_READY)
        return EMPTY

    inference = partial(infer, plane, deadline_seconds=settings.deadline_seconds)
    routes = {
        "/ping": Route(kind="health", methods={"GET": ready}),
        "/invocations": Route(kind="infer", methods={"POST": inference}),
        "/metrics": _metrics_route(observer),
    }
    model = plane.signature.model
    elsewhere = f"GET /ping and POST /invocations are, with model {model!r}."
    return dispatch_by_path(routes.get, elsewhere=elsewhere, observer=observer)


def _metrics_route(observer: RequestMetrics) -> Route:
    async def metrics_text(request: Request, stages: dict[str, float]) -> Response:
        return Response(200, observer.metrics.exposition(), CONTENT_TYPE)

    return Route(kind="metrics", methods={"GET": metrics_text})


def multi_model_application(
    models: LoadedModels, settings: Settings, observer: RequestMetrics
) -> Application:
    """Return the HTTP application of several models; it is healthy without any."""

    async def healthy(request: Request, stages: dict[str, float]) -> Response:
        return EMPTY

    async def invoke_model(request: Request, stages: dict[str, float]) -> Response:
        plane = models.plane(_name(request.path, "/invoke"))
        return await infer(plane, request, stages, deadline_seconds=settings.deadline_seconds)

    async def load(request: Request, stages: dict[str, float]) -> Response:
        refuse_encoding(request)
        document = read_document(request.body)
        name, url = (_required_string(document, field) for field in ("model_name", "url"))
        await models.load(name, url)
        return EMPTY

    async def list_models(request: Request, stages: dict[str, float]) -> Response:
        entries, token = models.page(*_page(request.query))
        document: dict[str, Any] = {"models": [_document(entry) for entry in entries]}
        return json_response(document if token is None else document | {"nextPageToken": token})

    async def describe(request: Request, stages: dict[str, float]) -> Response:
        return json_response(_document(models.entry(_name(request.path))))

    async def unload(request: Request, stages: dict[str, float]) -> Response:
        await models.unload(_name(request.path))
        return EMPTY

    routes = {
        "/ping": Route(kind="health", methods={"GET": healthy}),
        "/models": Route(kind="models", methods={"GET": list_models, "POST": load}),
        "/metrics": _metrics_route(observer),
    }
    one: Mapping[str, Answer] = {"GET": describe, "DELETE": unload}
    invoke: Mapping[str, Answer] = {"POST": invoke_model}

    def route_of(path: str) -> Route | None:
        if not path.startswith("/models/"):
            return routes.get(path)
        if path.endswith("/invoke"):
            return Route(kind="infer", methods=invoke, model=_name(path, "/invoke"))
        return None if "/" in _name(path) else Route(kind="model", methods=one, model=_name(path))

    elsewhere = "GET /ping, /models, /models/NAME and POST /models/NAME/invoke are."
    return dispatch_by_path(route_of, elsewhere=elsewhere, observer=observer)


def _name(path: str, end: str = "") -> str:
    return path.removeprefix("/models/").removesuffix(end)


def _required_string(document: dict[str, Any], field: str) -> str:
    """Return a string that a request to load must have."""
    value = document.get(field)
    if not isinstance(value, str):
        raise RequestFault(f'The request needs "{field}" with a string, not {json_type(value)}.')
    if not value or len(value) > 1024 or not value.isprintable():
        raise RequestFault(
            f'"{field}" is {excerpt(value)}; it must have 1 to 1024 printable characters.'
        )
    return value


def _page(query: str) -> tuple[str | None, int]:
    """Return token and size of the page that a query requests."""
    parameters = parse_qs(query)
    limit = parameters.get("limit", [str(DEFAULT_PAGE)])[-1]
    if not limit.isascii() or not limit.isdigit() or len(limit) > 9 or int(limit) == 0:
        raise RequestFault(
            f"limit is {excerpt(limit)}; it must be a whole number from 1 to {LARGEST_PAGE}."
        )
    return parameters.get("next_page_token", [None])[-1], min(int(limit), LARGEST_PAGE)


def _document(model: LoadedModel) -> dict[str, str]:
    return {"modelName": model.name, "modelUrl": model.url}
