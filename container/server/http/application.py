"""The HTTP applications of a server by its settings, with metrics and the failure log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from container.server.data_plane.model import Model
from container.server.data_plane.multi_model import LoadedModels
from container.server.data_plane.plane import DataPlane
from container.server.http.messages import Application, HttpLimits
from container.server.http.multi_model_routes import multi_model_application
from container.server.http.routes import Metrics, model_application
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import MetricValues
from container.server.telemetry.metrics import RequestMetrics, exposition


def served_model_application(
    plane: DataPlane,
    model: Model,
    settings: Settings,
    metric_values: MetricValues,
    log: FailureLog,
    *,
    metrics: Metrics | None = None,
    is_ready: Callable[[], bool] | None = None,
) -> Application:
    """Return the application of one model.

    `metrics` None are those of `metric_values`; `is_ready` None asks the plane alone.
    """
    common = _common_arguments(settings, metric_values, log, model=model.name)
    return model_application(
        plane,
        platform=model.platform,
        is_ready=(lambda: plane.ready) if is_ready is None else is_ready,
        **common | ({} if metrics is None else {"metrics": metrics}),
    )


def loaded_models_application(
    models: LoadedModels, settings: Settings, metric_values: MetricValues, log: FailureLog
) -> Application:
    """Return the application of several models."""
    return multi_model_application(models, **_common_arguments(settings, metric_values, log))


def http_limits(settings: Settings) -> HttpLimits:
    """Return the limits of connections and requests."""
    return HttpLimits(
        body_bytes=settings.max_body_bytes,
        request_seconds=settings.request_seconds,
        max_connections=settings.max_connections,
    )


def _common_arguments(
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
