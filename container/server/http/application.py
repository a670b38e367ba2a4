"""The HTTP servers of one model and of several, with metrics and the failure log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.server.data_plane.model import Model
from container.server.data_plane.multi_model import LoadedModels
from container.server.data_plane.plane import DataPlane
from container.server.http.messages import Application, HttpLimits
from container.server.http.multi_model_routes import multi_model_application
from container.server.http.routes import Metrics, model_application
from container.server.http.server import HttpServer
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import MetricValues
from container.server.telemetry.metrics import RequestMetrics, exposition, gauge


def model_server(
    plane: DataPlane,
    model: Model,
    settings: Settings,
    metric_values: MetricValues,
    log: FailureLog,
    *,
    metrics: Metrics | None = None,
    is_ready: Callable[[], bool] | None = None,
) -> HttpServer:
    """Return the server of one model.

    `metrics` None are those of `metric_values`; `is_ready` None asks the plane alone.
    """
    options = _options(settings, metric_values, log, model=model.name)
    if metrics is not None:
        options["metrics"] = metrics
    ready = (lambda: plane.ready) if is_ready is None else is_ready
    application = model_application(plane, platform=model.platform, is_ready=ready, **options)
    return _server(application, settings, metric_values)


def multi_model_server(
    models: LoadedModels, settings: Settings, metric_values: MetricValues, log: FailureLog
) -> HttpServer:
    """Return the server of several models."""
    application = multi_model_application(models, **_options(settings, metric_values, log))
    return _server(application, settings, metric_values)


def _server(
    application: Application, settings: Settings, metric_values: MetricValues
) -> HttpServer:
    limits = HttpLimits(
        body_bytes=settings.max_body_bytes,
        request_seconds=settings.request_seconds,
        max_connections=settings.max_connections,
    )
    server = HttpServer(application, limits=limits)
    gauge(metric_values, "roundhouse_connections", lambda: server.connections)
    return server


def _options(
    settings: Settings, metric_values: MetricValues, log: FailureLog, *, model: str = ""
) -> dict[str, Any]:
    async def metrics() -> bytes:
        return exposition(metric_values.snapshot())

    return {
        "max_body_bytes": settings.max_body_bytes,
        "deadline_seconds": settings.deadline_seconds,
        "metrics": metrics,
        "failed": lambda fault: log.report("request_failed", fault, stage="http", status=500),
        "observer": RequestMetrics(metric_values, model=model, log=log),
    }
