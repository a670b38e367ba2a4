"""Application Auto Scaling under load; a minute lasts a second here."""

import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.local_cloud.account import until

pytestmark = pytest.mark.local_cloud
RATE, TARGET = 10, 240
"""Requests a second that need three instances of so many requests a minute, and little of the
machine.
"""


DIMENSION = "sagemaker:variant:DesiredInstanceCount"
PREDEFINED = {
    "PredefinedMetricSpecification": {
        "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
    }
}


class Scaled:
    """An endpoint of one variant, and how it is scaled."""

    def __init__(self, cloud, name):
        self.cloud, self.name = cloud, name
        self.client = cloud.client("application-autoscaling")
        self.of = {
            "ServiceNamespace": "sagemaker",
            "ResourceId": f"endpoint/{name}/variant/AllTraffic",
            "ScalableDimension": DIMENSION,
        }

    def register(self, low=1, high=3, **more):
        self.client.register_scalable_target(**self.of, MinCapacity=low, MaxCapacity=high, **more)

    def track(self, target, metric=PREDEFINED, name="invocations", **more):
        configuration = {
            "TargetValue": target,
            "ScaleOutCooldown": 0,
            "ScaleInCooldown": 60,
            **metric,
            **more,
        }
        return self.client.put_scaling_policy(
            **self.of,
            PolicyName=name,
            PolicyType="TargetTrackingScaling",
            TargetTrackingScalingPolicyConfiguration=configuration,
        )

    def count(self):
        described = self.cloud.client("sagemaker").describe_endpoint(EndpointName=self.name)
        settled = described["EndpointStatus"] == "InService"
        return described["ProductionVariants"][0]["CurrentInstanceCount"] if settled else None

    def comes_to(self, count):
        return until(lambda: self.count() == count)

    def activities(self, **options):
        named = {field: self.of[field] for field in ("ServiceNamespace", "ResourceId")}
        return self.client.describe_scaling_activities(**named, **options)["ScalingActivities"]

    def last_activity(self):
        """The newest activity, once it has ended."""

        def newest_ended():
            newest = self.activities()[0]
            return None if newest["StatusCode"] == "InProgress" else newest

        return until(newest_ended)

    def alarms(self):
        prefix = f"TargetTracking-{self.of['ResourceId']}"
        found = self.cloud.client("cloudwatch").describe_alarms(AlarmNamePrefix=prefix)[
            "MetricAlarms"
        ]
        return {
            name.removeprefix(prefix).split("-")[1]: alarm
            for alarm in found
            for name in [alarm["AlarmName"]]
        }


CALLERS = 8


@contextlib.contextmanager
def paced_load(ask, rate):
    """Asks `rate` times a second until the block ends.

    Gives the list of what was answered, in order.
    """
    answers, done = [], threading.Event()

    def keep_asking():
        with ThreadPoolExecutor(CALLERS) as callers:
            start, count = time.monotonic(), 0
            while not done.wait(0.01):
                due = int((time.monotonic() - start) * rate)
                for _ in range(due - count):
                    callers.submit(lambda: answers.append(ask()))
                count = due

    thread = threading.Thread(target=keep_asking)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()


@pytest.fixture
def endpoint(cloud, request):
    test = request.node.originalname.removeprefix("test_").replace("_", "-")
    name = f"scaled-{test[:40].strip('-')}"
    cloud.serve(name)
    yield Scaled(cloud, name)
    cloud.destroy(name)


def test_load_makes_instances_more_and_its_end_fewer(endpoint):
    endpoint.register()
    endpoint.track(TARGET)
    with paced_load(lambda: endpoint.cloud.invoke(endpoint.name), RATE) as answers:
        endpoint.comes_to(3)
        count = len(answers)
        until(lambda: len({answer["instance"] for answer in answers[count:]}) == 3)
    grown = endpoint.activities()[-1]
    high = endpoint.alarms()["AlarmHigh"]["AlarmName"]
    assert grown["Cause"] == f"monitor alarm {high} in state ALARM triggered policy invocations"
    assert grown["Description"].startswith("Setting desired instance count to ")
    endpoint.comes_to(1)
    shrunk = endpoint.last_activity()
    assert (shrunk["Description"], shrunk["StatusCode"], shrunk["StatusMessage"]) == (
        "Setting desired instance count to 1.",
        "Successful",
        "Successfully set desired instance count to 1. Change successfully fulfilled by sagemaker.",
    )
    assert "-AlarmLow-" in shrunk["Cause"]
    assert shrunk["EndTime"] >= shrunk["StartTime"]
