"""GPU utilization from metrics that come late."""

from __future__ import annotations

import datetime

import pytest

from roundhouse.load_test.served_engine import gpu_utilization_percent

pytestmark = pytest.mark.unit


class CloudWatch:
    """Gives one more datapoint at each call."""

    def __init__(self, *averages):
        self.averages, self.calls = averages, []

    def get_metric_statistics(self, **request):
        self.calls.append(request)
        return {"Datapoints": [{"Average": item} for item in self.averages[: len(self.calls)]]}


BEGIN = datetime.datetime(2026, 11, 21, 10, 0, 30, tzinfo=datetime.UTC)
END = BEGIN + datetime.timedelta(minutes=3)


def utilization(cloudwatch, gpus=1, end=END):
    """Return the percentage and the seconds that were waited for it."""
    waits = [0.0]
    percent = gpu_utilization_percent(
        cloudwatch, "dev-e", gpus, BEGIN, end, sleep=waits.append, now=lambda: sum(waits)
    )
    return percent, sum(waits)


def test_utilization_is_the_mean_of_the_whole_minutes_for_each_gpu():
    cloudwatch = CloudWatch(300.0, 340.0)
    assert utilization(cloudwatch, gpus=4) == (80.0, 15.0)
    (first, *_) = cloudwatch.calls
    assert (first["StartTime"].minute, first["EndTime"].minute) == (1, 3)
    assert {"Name": "VariantName", "Value": "AllTraffic"} in first["Dimensions"]


def test_utilization_takes_what_came_when_the_wait_is_over():
    assert utilization(CloudWatch(70.0)) == (70.0, 180.0)


def test_utilization_is_unknown_without_a_metric_or_a_whole_minute():
    assert utilization(CloudWatch())[0] is None
    assert utilization(CloudWatch(70.0), end=BEGIN + datetime.timedelta(seconds=40))[0] is None
