"""The answerings of one model and of several, with samples and the failure log behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from container.server.data_plane.model import Model
from container.server.data_plane.multi_model import LoadedModels
from container.server.http.inference import Plane
from container.server.http.messages import Application, HttpLimits
from container.server.http.multi_model_routes import multi_model_application
from container.server.http.routes import Metrics, model_application
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import MetricValues
from container.server.telemetry.metrics import RequestMetrics, exposition


def served_model_application(
    plane: Plane,
    model: Model,
    settings: Settings,
    metric_values: MetricValues,
    log: FailureLog,
    *,
    metrics: Metrics | None = None,
) -> Application:
    """Answers for one model; `metrics` None are those of `metric_values`."""
    listed = _told(settings, metric_values, log, model=model.name, metrics=metrics)
    return model_application(plane, platform=model.platform, **listed)


def loaded_models_application(
    models: LoadedModels, settings: Settings, metric_values: MetricValues, log: FailureLog
) -> Application:
    """Answers for several models."""
    return multi_model_application(models, **_told(settings, metric_values, log))


def http_limits(settings: Settings) -> HttpLimits:
    """What HTTP puts up with."""
    return HttpLimits(
        body_bytes=settings.max_body_bytes,
        request_seconds=settings.request_seconds,
        max_connections=settings.max_connections,
    )


class _Snapshot(TypedDict):
    """What every answering is told beside whom it answers for."""

    max_body_bytes: int
    deadline_seconds: float
    metrics: Metrics
    failed: Callable[[BaseException], None]
    observer: RequestMetrics


def _told(
    settings: Settings,
    metric_values: MetricValues,
    log: FailureLog,
    *,
    model: str = "",
    metrics: Metrics | None = None,
) -> _Snapshot:
    async def own() -> bytes:
        return exposition(metric_values.snapshot())

    return _Snapshot(
        max_body_bytes=settings.max_body_bytes,
        deadline_seconds=settings.deadline_seconds,
        metrics=own if metrics is None else metrics,
        failed=lambda fault: log.report("request_failed", fault, stage="http", status=500),
        observer=RequestMetrics(metric_values, model=model, log=log),
    )
