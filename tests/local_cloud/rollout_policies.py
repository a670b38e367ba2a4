"""Deployment configurations of every rollout, all watched by one alarm."""

import json

ALARM = "too-slow"
WATCHED = {"AutoRollbackConfiguration": {"Alarms": [{"AlarmName": ALARM}]}}
HALF = {"Type": "CAPACITY_PERCENT", "Value": 50}


def blue_green(kind, wait=60, **step):
    routing = {"Type": kind, "WaitIntervalInSeconds": wait, **step}
    return {
        "BlueGreenUpdatePolicy": {
            "TrafficRoutingConfiguration": routing,
            "TerminationWaitInSeconds": 30,
        },
        **WATCHED,
    }


ROLLOUTS = {
    "all_at_once": blue_green("ALL_AT_ONCE"),
    "canary": blue_green("CANARY", CanarySize={"Type": "INSTANCE_COUNT", "Value": 1}),
    "linear": blue_green("LINEAR", LinearStepSize={"Type": "CAPACITY_PERCENT", "Value": 40}),
    "rolling": {
        "RollingUpdatePolicy": {"MaximumBatchSize": HALF, "WaitIntervalInSeconds": 60},
        **WATCHED,
    },
}


def baking(deployment, seconds):
    """The same rollout with another wait.

    AWS's hour is a minute here, long enough for whatever a test does meanwhile.
    """
    return json.loads(
        json.dumps(deployment).replace(
            '"WaitIntervalInSeconds": 60', f'"WaitIntervalInSeconds": {seconds}'
        )
    )
