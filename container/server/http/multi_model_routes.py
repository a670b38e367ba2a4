"""The paths of SageMaker's multi-model contract, with the documents that AWS specifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import parse_qs

from container.server.codecs.envelope import (
    JSON_TYPE,
    excerpt,
    json_bytes,
    json_type,
    read_document,
)
from container.server.http.inference import Plane, decompressed_body, infer
from container.server.http.messages import Application, Request, Response
from container.server.http.routes import (
    EMPTY,
    Answer,
    Metrics,
    Route,
    common_routes,
    constant_answer,
    dispatch_by_path,
)
from container.server.observers import NullRequestObserver, RequestObserver
from container.server.types import RequestFault

DEFAULT_PAGE = 100
LARGEST_PAGE = 1000


class Entry(Protocol):
    """A loaded model: the name that requests use, and the path of its archive."""

    @property
    def name(self) -> str: ...
    @property
    def url(self) -> str: ...


class LoadedModels(Protocol):
    """The loaded models."""

    async def load(self, name: str, url: str) -> None:
        """Raises Conflict, OutOfMemory, RequestFault."""
        ...

    async def unload(self, name: str) -> None:
        """Raises UnknownPath."""
        ...

    def page(self, token: str | None, limit: int) -> tuple[Sequence[Entry], str | None]:
        """A page of models and the next page's token.

        Raises RequestFault for a token that it never gave.
        """
        ...

    def entry(self, name: str) -> Entry:
        """Raises UnknownPath."""
        ...

    def plane(self, name: str) -> Plane:
        """Raises UnknownPath."""
        ...


def multi_model_application(
    models: LoadedModels,
    *,
    max_body_bytes: int,
    deadline_seconds: float,
    metrics: Metrics,
    failed: Callable[[BaseException], None],
    observer: RequestObserver | None = None,
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
        body = await decompressed_body(
            request.body, request.headers.get(b"content-encoding"), max_body_bytes
        )
        document = read_document(body)
        await models.load(
            _required_string(document, "model_name"), _required_string(document, "url")
        )
        return EMPTY

    async def list_models(request: Request, stages: dict[str, float]) -> Response:
        entries, token = models.page(*_page(request.query))
        document: dict[str, Any] = {"models": [_document(entry) for entry in entries]}
        return _json(document if token is None else document | {"nextPageToken": token})

    async def describe(request: Request, stages: dict[str, float]) -> Response:
        return _json(_document(models.entry(_name(request.path))))

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
    return dispatch_by_path(
        route_of,
        elsewhere=elsewhere,
        observer=NullRequestObserver() if observer is None else observer,
        failed=failed,
    )


def _name(path: str, end: str = "") -> str:
    return path.removeprefix("/models/").removesuffix(end)


def _required_string(document: dict[str, Any], field: str) -> str:
    """A string that a request to load must have."""
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


def _document(entry: Entry) -> dict[str, str]:
    return {"modelName": entry.name, "modelUrl": entry.url}


def _json(document: dict[str, Any]) -> Response:
    return Response(200, json_bytes(document), JSON_TYPE)
