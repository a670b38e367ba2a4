"""GPU utilization from metrics that come late."""

from __future__ import annotations

import datetime

import pytest

from roundhouse.load_test.served_engine import gpu_utilization_percent

pytestmark = pytest.mark.unit


class CloudWatch:
    """Gives one more datapoint each time it is calls."""

    def __init__(self, *averages, at_once=0):
        self.averages, self.there, self.calls = averages, at_once, []

    def get_metric_statistics(self, **request):
        self.calls.append(request)
        self.there += 1
        return {"Datapoints": [{"Average": item} for item in self.averages[: self.there]]}


BEGIN = datetime.datetime(2026, 11, 21, 10, 0, 30, tzinfo=datetime.UTC)
END = BEGIN + datetime.timedelta(minutes=3)


class Clock:
    def __init__(self):
        self.seconds = 0.0

    def sleep(self, seconds):
        self.seconds += seconds

    def now(self):
        return self.seconds


def utilization(cloudwatch, gpus=1, begin=BEGIN, end=END):
    clock = Clock()
    return gpu_utilization_percent(
        cloudwatch, "dev-e", gpus, begin, end, sleep=clock.sleep, now=clock.now
    ), clock.seconds


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
