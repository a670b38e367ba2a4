"""The paths of the Python server: those of one model, and those of SageMaker's several models."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any
from urllib.parse import parse_qs

from container.server.codecs.envelope import excerpt, json_bytes, json_type, read_document
from container.server.data_plane.multi_model import LoadedModel, LoadedModels
from container.server.data_plane.plane import DataPlane
from container.server.http.dispatch import (
    HEALTH,
    Answer,
    Route,
    Stages,
    dispatch_by_path,
    refuse_encoding,
)
from container.server.http.inference import infer
from container.server.http.messages import Application, Request, Response
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metrics import CONTENT_TYPE, RequestMetrics
from container.server.types import JSON_TYPE, RequestFault, Unavailable

EMPTY = Response(200, b"", JSON_TYPE)
NOT_READY = "The server is not ready: it is loading, draining or its engine fails."

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


def model_application(
    plane: DataPlane, settings: Settings, observer: RequestMetrics, log: FailureLog
) -> Application:
    """Return the HTTP application of one model."""

    async def ready(request: Request, stages: Stages) -> Response:
        if not plane.ready:
            raise Unavailable(NOT_READY)
        return EMPTY

    inference = partial(infer, plane, deadline_seconds=settings.deadline_seconds)
    routes = {
        "/ping": Route(kind=HEALTH, methods={"GET": ready}),
        "/invocations": Route(kind="infer", methods={"POST": inference}),
        "/metrics": _metrics_route(observer),
    }
    model = plane.signature.model
    elsewhere = f"GET /ping and POST /invocations are, with model {model!r}."
    return dispatch_by_path(routes.get, elsewhere=elsewhere, log=log, over=observer.request_over)


def _metrics_route(observer: RequestMetrics) -> Route:
    async def metrics_text(request: Request, stages: Stages) -> Response:
        return Response(200, observer.metrics.exposition(), CONTENT_TYPE)

    return Route(kind="metrics", methods={"GET": metrics_text})


def multi_model_application(
    models: LoadedModels, settings: Settings, observer: RequestMetrics, log: FailureLog
) -> Application:
    """Return the HTTP application of several models; it is healthy without any."""

    async def healthy(request: Request, stages: Stages) -> Response:
        return EMPTY

    async def invoke_model(request: Request, stages: Stages) -> Response:
        plane = models.plane(_name(request.path, "/invoke"))
        return await infer(plane, request, stages, deadline_seconds=settings.deadline_seconds)

    async def load(request: Request, stages: Stages) -> Response:
        refuse_encoding(request)
        document = read_document(request.body)
        name, url = (_required_string(document, field) for field in ("model_name", "url"))
        await models.load(name, url)
        return EMPTY

    async def list_models(request: Request, stages: Stages) -> Response:
        entries, token = models.page(*_page(request.query))
        document: dict[str, Any] = {"models": [_document(entry) for entry in entries]}
        return _json_response(document if token is None else document | {"nextPageToken": token})

    async def describe(request: Request, stages: Stages) -> Response:
        return _json_response(_document(models.entry(_name(request.path))))

    async def unload(request: Request, stages: Stages) -> Response:
        await models.unload(_name(request.path))
        return EMPTY

    routes = {
        "/ping": Route(kind=HEALTH, methods={"GET": healthy}),
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
    return dispatch_by_path(route_of, elsewhere=elsewhere, log=log, over=observer.request_over)


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


def _json_response(document: dict[str, Any]) -> Response:
    return Response(200, json_bytes(document), JSON_TYPE)


def _document(model: LoadedModel) -> dict[str, str]:
    return {"modelName": model.name, "modelUrl": model.url}
