"""The answerings of one model and of several, with samples and the failure log behind them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

from container.server.data_plane.model import Model
from container.server.data_plane.multi_model import Models
from container.server.http.inference import Plane
from container.server.http.messages import Answering, HttpLimits
from container.server.http.multi_model_routes import multi_model_answering
from container.server.http.routes import Metrics, answering
from container.server.settings import Settings
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import Samples
from container.server.telemetry.metrics import RequestMetrics, exposition


def model_answering(
    plane: Plane,
    model: Model,
    settings: Settings,
    samples: Samples,
    log: FailureLog,
    *,
    metrics: Metrics | None = None,
) -> Answering:
    """Answers for one model; `metrics` None are those of `samples`."""
    told = _told(settings, samples, log, model=model.name, metrics=metrics)
    return answering(plane, platform=model.platform, **told)


def models_answering(
    models: Models, settings: Settings, samples: Samples, log: FailureLog
) -> Answering:
    """Answers for several models."""
    return multi_model_answering(models, **_told(settings, samples, log))


def limits_of(settings: Settings) -> HttpLimits:
    """What HTTP puts up with."""
    return HttpLimits(
        body_bytes=settings.max_body_bytes,
        request_seconds=settings.request_seconds,
        max_connections=settings.max_connections,
    )


class _Told(TypedDict):
    """What every answering is told beside whom it answers for."""

    max_body_bytes: int
    deadline_seconds: float
    metrics: Metrics
    failed: Callable[[BaseException], None]
    observer: RequestMetrics


def _told(
    settings: Settings,
    samples: Samples,
    log: FailureLog,
    *,
    model: str = "",
    metrics: Metrics | None = None,
) -> _Told:
    async def own() -> bytes:
        return exposition(samples.snapshot())

    return _Told(
        max_body_bytes=settings.max_body_bytes,
        deadline_seconds=settings.deadline_seconds,
        metrics=own if metrics is None else metrics,
        failed=lambda fault: log.report("request_failed", fault, stage="http", status=500),
        observer=RequestMetrics(samples, model=model, log=log),
    )
