"""How busy an endpoint's GPUs were while a rate was held, by SageMaker's own metric."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from dataclasses import dataclass

from roundhouse.aws.clients import Client, calling

PERIOD = datetime.timedelta(minutes=1)
LAST_SECONDS = 180.0
"""Metrics come a minute or two late."""
EACH_SECONDS = 15.0


@dataclass(frozen=True, kw_only=True)
class Watch:
    """The variant that is watched, and the GPUs of an instance that its server uses."""

    endpoint: str
    variant: str
    gpus: int


def gpu_utilization_percent(
    cloudwatch: Client,
    watch: Watch,
    begin: datetime.datetime,
    end: datetime.datetime,
    *,
    sleep: Callable[[float], None] = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> float | None:
    """Of one GPU, in the mean of the whole minutes between begin and end; None when no metric came,
    or no minute was whole.

    The metric counts 100 for each GPU of an instance.
    """
    first, last = _minute(begin) + PERIOD, _minute(end)
    until = now() + LAST_SECONDS
    while first < last:
        found = _averages(cloudwatch, watch, first, last)
        if len(found) >= (last - first) // PERIOD or (found and now() >= until):
            return round(min(100.0, sum(found) / len(found) / watch.gpus), 1)
        if now() >= until:
            return None
        sleep(EACH_SECONDS)
    return None


def _averages(
    cloudwatch: Client, watch: Watch, first: datetime.datetime, last: datetime.datetime
) -> list[float]:
    with calling("CloudWatch"):
        answer = cloudwatch.get_metric_statistics(
            Namespace="/aws/sagemaker/Endpoints",
            MetricName="GPUUtilization",
            Dimensions=[
                {"Name": "EndpointName", "Value": watch.endpoint},
                {"Name": "VariantName", "Value": watch.variant},
            ],
            StartTime=first,
            EndTime=last,
            Period=int(PERIOD.total_seconds()),
            Statistics=["Average"],
        )
    return [float(each["Average"]) for each in answer["Datapoints"]]


def _minute(moment: datetime.datetime) -> datetime.datetime:
    return moment.replace(second=0, microsecond=0)
