"""The paths of SageMaker's multi-model contract, with the documents that AWS specifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs

from container.server.codecs.envelope import excerpt, json_type, read_document
from container.server.data_plane.multi_model import LoadedModel, LoadedModels
from container.server.http.inference import decompressed_body, infer
from container.server.http.messages import Application, Request, Response, json_response
from container.server.http.routes import (
    EMPTY,
    Answer,
    Route,
    common_routes,
    constant_answer,
    dispatch_by_path,
)
from container.server.telemetry.metrics import RequestMetrics, ServerMetrics
from container.server.types import RequestFault

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


def multi_model_application(
    models: LoadedModels,
    *,
    max_body_bytes: int,
    deadline_seconds: float,
    metrics: ServerMetrics,
    failed: Callable[[BaseException], None],
    observer: RequestMetrics,
) -> Application:
    """Return the HTTP application of several models.

    `max_body_bytes` bounds decompressed bodies; `failed` is called with faults of this server.
    """

    async def invoke_model(request: Request, stages: dict[str, float]) -> Response:
        plane = models.plane(_name(request.path, "/invoke"))
        return await infer(
            plane, request, stages, max_body_bytes=max_body_bytes, deadline_seconds=deadline_seconds
        )

    async def load(request: Request, stages: dict[str, float]) -> Response:
        encoding = request.headers.get(b"content-encoding")
        body = await decompressed_body(request.body, encoding, max_body_bytes)
        document = read_document(body)
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

    health = Route(kind="health", methods={"GET": constant_answer(EMPTY)})
    routes = common_routes(metrics) | {"/ping": health, "/v2/health/ready": health}
    routes["/models"] = Route(kind="models", methods={"GET": list_models, "POST": load})
    one: Mapping[str, Answer] = {"GET": describe, "DELETE": unload}
    invoke: Mapping[str, Answer] = {"POST": invoke_model}

    def route_of(path: str) -> Route | None:
        if not path.startswith("/models/"):
            return routes.get(path)
        if path.endswith("/invoke"):
            return Route(kind="infer", methods=invoke, model=_name(path, "/invoke"))
        return None if "/" in _name(path) else Route(kind="model", methods=one, model=_name(path))

    elsewhere = "GET /ping, /models, /models/NAME and POST /models/NAME/invoke are."
    return dispatch_by_path(route_of, elsewhere=elsewhere, observer=observer, failed=failed)


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
