"""The CloudWatch alarms that Application Auto Scaling creates for target tracking policies.

3 datapoints of a minute above the target scale out; 15 minutes below 90 % of it may scale in.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ministack.services import cloudwatch

from local_cloud.application_autoscaling.records import PREDEFINED, Key, Policy
from local_cloud.application_autoscaling.tracking import SCALE_IN_SHARE
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.errors import present_fields
from onboarding.metrics import INVOCATIONS

HIGH_DATAPOINTS = 3
LOW_SECONDS = 15 * 60
PERIOD = 60
Alarm = dict[str, Any]


def put_alarms(policy: Policy) -> None:
    """Replace a policy's alarms by ones with new names, as every PutScalingPolicy does."""
    delete_alarms(policy)
    alarms = _policy_alarms(policy) if policy.is_tracking else []
    for alarm in alarms:
        cloudwatch.cloudformation_put_metric_alarm(alarm)
    policy.alarms = {alarm["AlarmName"]: alarm["AlarmArn"] for alarm in alarms}


def delete_alarms(policy: Policy) -> None:
    """Delete the alarms of a policy."""
    for name in policy.alarms:
        cloudwatch.cloudformation_delete_metric_alarm(name)
    policy.alarms = {}


def _policy_alarms(policy: Policy) -> list[Alarm]:
    """AlarmHigh, and AlarmLow unless scale-in is disabled."""
    target = float(policy.configuration["TargetValue"])
    metric = _metric(policy.key, policy.configuration)
    high = {
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": target,
        "EvaluationPeriods": HIGH_DATAPOINTS,
    }
    low = {
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": target * SCALE_IN_SHARE,
        "EvaluationPeriods": LOW_SECONDS // int(metric.get("Period", PERIOD)),
    }
    alarms = [_alarm(policy, "AlarmHigh", metric | high)]
    return [*alarms, _alarm(policy, "AlarmLow", metric | low)] if policy.scales_in else alarms


def _metric(key: Key, configuration: Mapping[str, Any]) -> Alarm:
    """The metric and statistic that a policy's alarms watch."""
    custom = configuration.get("CustomizedMetricSpecification")
    if custom is None:
        predefined = configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]
        name, statistic, period = PREDEFINED[key.dimension][predefined]
        return {
            "Namespace": INVOCATIONS,
            "MetricName": name,
            "Statistic": statistic,
            "Period": period,
            "Dimensions": key.metric_dimensions,
        }
    names = ("Namespace", "MetricName", "Statistic", "Unit")
    metric = present_fields(**{name: custom.get(name) for name in names})
    return {**metric, "Period": PERIOD, "Dimensions": list(custom.get("Dimensions") or ())}


def _alarm(policy: Policy, kind: str, rule: Alarm) -> Alarm:
    name, now = f"TargetTracking-{policy.key.resource_id}-{kind}-{uuid.uuid4()}", int(time.time())
    description = f"DO NOT EDIT OR DELETE. For TargetTrackingScaling policy {policy.arn}."
    return {
        "AlarmName": name,
        "AlarmArn": f"arn:aws:cloudwatch:{region()}:{account_id()}:alarm:{name}",
        "AlarmDescription": description,
        "ActionsEnabled": True,
        "AlarmActions": [policy.arn],
        "OKActions": [],
        "InsufficientDataActions": [],
        "StateValue": "INSUFFICIENT_DATA",
        "StateReason": "Unchecked: Initial alarm creation",
        "StateUpdatedTimestamp": now,
        "AlarmConfigurationUpdatedTimestamp": now,
        "TreatMissingData": "missing",
        **rule,
    }
