"""The paths of a server of one model: SageMaker's, KServe v2's, and the metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from container.server.codecs.envelope import JSON_TYPE
from container.server.http.dispatch import Answer, Route, dispatching
from container.server.http.inference import Plane, infer
from container.server.http.message import Answering, Request, Response
from container.server.http.metadata import model_metadata, server_metadata
from container.server.http.observer import Deaf, Observer
from container.server.types import Unavailable

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NOT_READY = "The server is not ready: it is loading, draining or its engine fails."
Metrics = Callable[[], Awaitable[bytes]]
"""The metrics in Prometheus's text format."""


def answering(
    plane: Plane,
    *,
    max_body_bytes: int,
    deadline_seconds: float,
    platform: str,
    metrics: Metrics,
    failed: Callable[[BaseException], None],
    observer: Observer | None = None,
) -> Answering:
    """Answers for one served model; `max_body_bytes` bounds unpacked bodies, `failed` hears of
    faults that are no client's.
    """

    async def ready(request: Request, stages: dict[str, float]) -> Response:
        if not plane.ready:
            raise Unavailable(NOT_READY)
        return EMPTY

    async def described(request: Request, stages: dict[str, float]) -> Response:
        return model_metadata(plane.signature, platform)

    model, version = plane.signature.model, plane.signature.version
    routes = common_routes(metrics)
    routes["/ping"] = routes["/v2/health/ready"] = Route(kind="health", methods={"GET": ready})
    inferred = partial(
        infer, plane, max_body_bytes=max_body_bytes, deadline_seconds=deadline_seconds
    )
    routes["/invocations"] = Route(kind="infer", methods={"POST": inferred})
    for place in (f"/v2/models/{model}", f"/v2/models/{model}/versions/{version}"):
        routes[place] = Route(kind="metadata", methods={"GET": described})
        routes[f"{place}/ready"] = routes["/ping"]
        routes[f"{place}/infer"] = routes["/invocations"]
    elsewhere = f"GET /ping and POST /invocations are, with model {model!r}."
    return dispatching(
        routes.get,
        elsewhere=elsewhere,
        observer=Deaf() if observer is None else observer,
        failed=failed,
    )


EMPTY = Response(200, b"", JSON_TYPE)


def common_routes(metrics: Metrics) -> dict[str, Route]:
    """The paths that every server of ours has, by path."""

    async def told(request: Request, stages: dict[str, float]) -> Response:
        return Response(200, await metrics(), METRICS_TYPE)

    return {
        "/v2": Route(kind="metadata", methods={"GET": always(server_metadata())}),
        "/v2/health/live": Route(kind="health", methods={"GET": always(EMPTY)}),
        "/metrics": Route(kind="metrics", methods={"GET": told}),
    }


def always(response: Response) -> Answer:
    """Answers the same to everyone."""

    async def answer(request: Request, stages: dict[str, float]) -> Response:
        return response

    return answer
