"""The paths of the Python server."""

from __future__ import annotations

from functools import partial

from container.server.data_plane.plane import DataPlane
from container.server.http.dispatch import (
    HEALTH,
    Route,
    Stages,
    dispatch_by_path,
)
from container.server.http.inference import infer
from container.server.http.messages import Application, Request, Response
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metrics import CONTENT_TYPE, RequestMetrics
from container.server.types import JSON_TYPE, Unavailable

EMPTY = Response(200, b"", JSON_TYPE)
NOT_READY = "The server is not ready: it is loading, draining or its engine fails."


def model_application(
    plane: DataPlane, settings: Settings, observer: RequestMetrics, log: FailureLog
) -> Application:
    """Return the HTTP application of one model."""

    async def ready(request: Request, stages: Stages) -> Response:
        if not plane.ready:
            raise Unavailable(NOT_READY)
        return EMPTY

    async def metrics_text(request: Request, stages: Stages) -> Response:
        return Response(200, observer.metrics.exposition(), CONTENT_TYPE)

    inference = partial(infer, plane, deadline_seconds=settings.deadline_seconds)
    routes = {
        "/ping": Route(kind=HEALTH, methods={"GET": ready}),
        "/invocations": Route(kind="infer", methods={"POST": inference}),
        "/metrics": Route(kind="metrics", methods={"GET": metrics_text}),
    }
    model = plane.signature.model
    elsewhere = f"GET /ping and POST /invocations are, with model {model!r}."
    return dispatch_by_path(routes.get, elsewhere=elsewhere, log=log, over=observer.request_over)
