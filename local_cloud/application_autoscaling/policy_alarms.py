"""The CloudWatch alarms of target tracking policies.

Made, named and described as Application Auto Scaling does.

Above the target for 3 datapoints of a minute scales out; below 90 % of it for 15 minutes may scale
in.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from ministack.services import cloudwatch

from local_cloud.application_autoscaling.records import Key, Policy
from local_cloud.application_autoscaling.requests import VARIANT_METRICS
from local_cloud.application_autoscaling.tracking import SCALE_IN_SHARE
from local_cloud.ministack.account import account_id, region

HIGH_DATAPOINTS = 3
LOW_SECONDS = 15 * 60
PERIOD = 60
Alarm = dict[str, Any]


def put_alarms(policy: Policy) -> None:
    """Replaces a policy's alarms by ones with new names, as every PutScalingPolicy does."""
    delete_alarms(policy)
    if not policy.is_tracking:
        return
    alarms = policy_alarms(policy)
    for alarm in alarms:
        cloudwatch.cloudformation_put_metric_alarm(alarm)
    policy.alarms = tuple(alarm["AlarmName"] for alarm in alarms)


def delete_alarms(policy: Policy) -> None:
    """Deletes the alarms that a policy made."""
    for name in policy.alarms:
        cloudwatch.cloudformation_delete_metric_alarm(name)
    policy.alarms = ()


def alarm_arn(name: str) -> str:
    """ARN of an alarm of the account and region in hand."""
    return f"arn:aws:cloudwatch:{region()}:{account_id()}:alarm:{name}"


def policy_alarms(policy: Policy) -> list[Alarm]:
    """The alarms that a target tracking policy needs.

    AlarmHigh, and AlarmLow unless scale-in is disabled.
    """
    target, watched = (
        float(policy.configuration["TargetValue"]),
        metric(policy.key, policy.configuration),
    )
    period = int(watched.get("Period", PERIOD))
    high = {
        "ComparisonOperator": "GreaterThanThreshold",
        "Threshold": target,
        "EvaluationPeriods": HIGH_DATAPOINTS,
    }
    below, periods = target * SCALE_IN_SHARE, LOW_SECONDS // period
    low = {
        "ComparisonOperator": "LessThanThreshold",
        "Threshold": below,
        "EvaluationPeriods": periods,
    }
    kinds = {"AlarmHigh": high, **({"AlarmLow": low} if policy.scales_in else {})}
    return [_alarm(policy, kind, {**watched, **rule}) for kind, rule in kinds.items()]


def metric(key: Key, configuration: Mapping[str, Any]) -> dict[str, Any]:
    """The metric and statistic, or the metric math, that a policy's alarms watch."""
    custom = configuration.get("CustomizedMetricSpecification")
    if custom is None:
        name, statistic, period = VARIANT_METRICS[
            configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]
        ]
        dimensions = [
            {"Name": "EndpointName", "Value": key.endpoint},
            {"Name": "VariantName", "Value": key.variant},
        ]
        return {
            "Namespace": "AWS/SageMaker",
            "MetricName": name,
            "Statistic": statistic,
            "Period": period,
            "Dimensions": dimensions,
        }
    if custom.get("Metrics"):
        return {"Metrics": [_with_period(query) for query in custom["Metrics"]]}
    kept = {
        name: custom[name]
        for name in ("Namespace", "MetricName", "Statistic", "Unit")
        if custom.get(name) is not None
    }
    return {**kept, "Period": PERIOD, "Dimensions": list(custom.get("Dimensions") or ())}


def _with_period(query: Mapping[str, Any]) -> dict[str, Any]:
    stat = query.get("MetricStat")
    return (
        {**query, "Period": PERIOD}
        if stat is None
        else {**query, "MetricStat": {**stat, "Period": PERIOD}}
    )


def _alarm(policy: Policy, kind: str, rule: Mapping[str, Any]) -> Alarm:
    name, now = f"TargetTracking-{policy.key.resource_id}-{kind}-{uuid.uuid4()}", int(time.time())
    return {
        "AlarmName": name,
        "AlarmArn": alarm_arn(name),
        "AlarmDescription": "DO NOT EDIT OR DELETE. For TargetTrackingScaling policy "
        f"{policy.arn}.",
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
