"""Updates and their rollbacks, under load.

The old fleet answers until the new one does, and goes on when it does not.
"""

import threading

import pytest

from tests.local_cloud.account import (
    CREATED,
    UPDATED,
    endpoint_resources,
    until,
    wait_until_gone,
)
from tests.local_cloud.load import steady_load

pytestmark = pytest.mark.local_cloud


ALARM = "too-slow"
WATCHED = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": ALARM}]}}


def blue_green(kind, wait=60, **step):
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **step}
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": 30,
        },
        **WATCHED,
    }


ONE = {"Type": "INSTANCE_COUNT", "Value": 1}
CANARY = blue_green("CANARY", CanarySize=ONE)
BAKING = blue_green("CANARY", wait=3600, CanarySize=ONE)
"""AWS's hour is a minute here, long enough for whatever a test does meanwhile."""
LINEAR = blue_green("LINEAR", LinearStepSize={"Type": "CAPACITY_PERCENT", "Value": 40})


@pytest.fixture
def alarm(cloud):
    """An alarm that stays as it is told to be."""
    cloudwatch = cloud.client("cloudwatch")
    cloudwatch.put_metric_alarm(
        AlarmName=ALARM,
        Namespace="Test",
        MetricName="Slowness",
        Statistic="Maximum",
        Period=3600,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="ignore",
    )
    cloudwatch.set_alarm_state(AlarmName=ALARM, StateValue="OK", StateReason="quiet")
    yield lambda state: cloudwatch.set_alarm_state(
        AlarmName=ALARM, StateValue=state, StateReason="told to"
    )
    cloudwatch.delete_alarms(AlarmNames=[ALARM])


def deployed(cloud, name, version, deployment=None, count=2, **options):
    """Deploys a version that greets with its own name."""
    url = cloud.put_archive(f"{name}/{version}.tar.gz", f"version {version}")
    resources = endpoint_resources(
        name, url, version=version, InitialInstanceCount=count, **options
    )
    if deployment is not None:
        resources["Endpoint"]["Properties"]["DeploymentConfig"] = deployment
    return cloud.deploy(name, resources)


def described(cloud, name):
    return cloud.client("sagemaker").describe_endpoint(EndpointName=name)


def has_only(load, greeting):
    """Waits for answers to new requests, and checks that all greet alike."""
    load.forget_answers()
    until(lambda: len(load.answers) > 20)
    assert load.greetings() == {greeting}


def test_linear_update_under_load_fails_no_request(cloud, alarm):
    name = "roll-linear"
    assert deployed(cloud, name, "1", LINEAR) == CREATED
    with steady_load(cloud, name) as load:
        assert deployed(cloud, name, "2", LINEAR) == UPDATED
        has_only(load, "version 2")
    assert load.failures == []
    shown = described(cloud, name)
    assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("InService", f"{name}-2")
    assert shown["ProductionVariants"][0]["CurrentInstanceCount"] == 2
    cloud.destroy(name)
    assert wait_until_gone(name)


def test_sick_version_and_an_alarm_roll_back_under_load_and_the_next_version_comes(cloud, alarm):
    name = "roll-back"
    deployed(cloud, name, "1", CANARY)
    with steady_load(cloud, name) as load:
        sick = {"environment": {"SERVER_MODE": "exits"}}
        status, reason = deployed(cloud, name, "2", CANARY, **sick)
        assert status == "UPDATE_ROLLBACK_COMPLETE"
        assert "the engine was made for another GPU" in reason
        assert load.greetings() == {"version 1"}
        tripping = threading.Thread(
            target=lambda: (load.until_answered("version 3"), alarm("ALARM"))
        )
        tripping.start()
        status, reason = deployed(cloud, name, "3", BAKING)
        tripping.join()
        has_only(load, "version 1")
        shown = described(cloud, name)
        assert status == "UPDATE_ROLLBACK_COMPLETE"
        assert f"AutoRollbackConfiguration are in ALARM state: {ALARM}." in reason
        assert (shown["EndpointStatus"], shown["EndpointConfigName"]) == ("InService", f"{name}-1")
        assert shown["FailureReason"] in reason
        assert shown["ProductionVariants"][0]["CurrentInstanceCount"] == 2
        alarm("OK")
        assert deployed(cloud, name, "4", CANARY)[0] == "UPDATE_COMPLETE"
        assert cloud.invoke(name)["greeting"] == "version 4"
    assert load.failures == []
    cloud.destroy(name)
    assert wait_until_gone(name)
