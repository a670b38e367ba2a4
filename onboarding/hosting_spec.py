"""Hosting of one endpoint, as files say it: scaling, pools, data capture, queues, metrics."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from onboarding.aws_limits import CONCURRENT_INVOCATIONS
from onboarding.values import Value

InstanceCount = Annotated[int, Field(ge=0, le=10_000)]


class ScheduledFloorSpec(Value):
    """Bounds that begin at a time, such as before the morning; the next schedule replaces them."""

    schedule: str = Field(
        description="cron(minute hour day month weekday year), rate(…) or at(…), in quotes"
    )
    min: InstanceCount = Field(description="Fewest instances from then on")
    max: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Most instances from then on; default: scaling.max"
    )
    timezone: str | None = Field(
        None, description="IANA time zone of the schedule, such as Europe/Berlin; default: UTC"
    )


class ScalingSpec(Value):
    """How many instances: between min and max, moved by target tracking."""

    min: InstanceCount = Field(
        1,
        description="Fewest instances; 0 makes one model an inference component, or a queue's "
        "(`asynchronous`) empty",
    )
    max: Annotated[int, Field(ge=1, le=10_000)] = Field(1, description="Most instances")
    safety_factor: Annotated[float, Field(ge=0.01, le=1)] = Field(
        0.5, description="Share of the measured capacity at which a further instance is asked for"
    )
    gpu_utilization_percent: Annotated[int, Field(ge=10, le=100)] = Field(
        70, description="GPU utilization at which a further instance is asked for"
    )
    scale_out_cooldown_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        60, description="Pause after instances were added"
    )
    scale_in_cooldown_seconds: Annotated[int, Field(ge=0, le=3600)] = Field(
        300, description="Pause after instances were removed"
    )
    schedule: tuple[ScheduledFloorSpec, ...] = Field((), description="Bounds by time of day")

    @property
    def fewest(self) -> int:
        """The lowest floor that there ever is."""
        return min([self.min, *(floor.min for floor in self.schedule)])


class InstancePoolSpec(Value):
    """A further instance type, with an engine of its own, taken when the first has no capacity."""

    instance_type: str = Field(description="A row of onboarding/data/instance_types.yaml")


class DataCaptureSpec(Value):
    """Requests and answers that the endpoint keeps, under captures/ of the artifact bucket."""

    percent: Annotated[int, Field(ge=1, le=100)] = Field(
        description="Share of the requests that is kept"
    )


class AsynchronousSpec(Value):
    """Requests come as S3 objects and wait in SageMaker's queue; answers go to `answers/`."""

    max_concurrent_invocations: (
        Annotated[int, Field(ge=1, le=CONCURRENT_INVOCATIONS.most)] | None
    ) = Field(
        None, description="Requests that one instance answers at once; default: SageMaker chooses"
    )
    notify: bool = Field(
        False, description="Tell the environment's topic of each answer and each failure"
    )


class MetricsSpec(Value):
    """What SageMaker publishes of the endpoint beside its standard metrics."""

    detailed: bool | None = Field(
        None,
        description="Per-GPU, host and container metrics by OpenTelemetry, which PromQL reads; "
        "default: SageMaker's, which is true",
    )
