"""All scalable targets and policies, and the alarms that target tracking policies create.

3 datapoints of a minute above the target scale out; 15 minutes below 90 % of it may scale in.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Mapping, MutableMapping
from typing import Any

from ministack.services import cloudwatch

from local_cloud.account import Scoped, account_id, region
from local_cloud.application_autoscaling.records import Key, Policy, Target, not_found
from local_cloud.protocol.errors import present_fields
from onboarding.metrics import INVOCATIONS

HIGH_DATAPOINTS = 3
LOW_SECONDS = 15 * 60
SCALE_IN_SHARE = 0.9
"""Target tracking scales in only below this share of its target."""
PERIOD = 60
PREDEFINED = {
    "SageMakerVariantInvocationsPerInstance": ("InvocationsPerInstance", "Sum", 60),
    "SageMakerInferenceComponentInvocationsPerCopy": ("InvocationsPerCopy", "Sum", 60),
    "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution": (
        "ConcurrentRequestsPerCopy",
        "Average",
        10,
    ),
}
"""The metric, statistic and period in seconds that a predefined metric tracks."""
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
        "EvaluationPeriods": LOW_SECONDS // int(metric["Period"]),
    }
    alarms = [_alarm(policy, "AlarmHigh", metric | high)]
    return [*alarms, _alarm(policy, "AlarmLow", metric | low)] if policy.scales_in else alarms


def _metric(key: Key, configuration: Mapping[str, Any]) -> Alarm:
    """The metric and statistic that a policy's alarms watch."""
    custom = configuration.get("CustomizedMetricSpecification")
    if custom is None:
        predefined = configuration["PredefinedMetricSpecification"]["PredefinedMetricType"]
        name, statistic, period = PREDEFINED[predefined]
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
    return {
        "AlarmName": name,
        "AlarmArn": f"arn:aws:cloudwatch:{region()}:{account_id()}:alarm:{name}",
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


class Registry:
    """All targets and policies; `turn` is their lock."""

    def __init__(self) -> None:
        self.targets: MutableMapping[Key, Target] = Scoped()
        self.policies: MutableMapping[tuple[Key, str], Policy] = Scoped()
        self.turn = threading.RLock()

    @property
    def scopes(self) -> list[tuple[str, str]]:
        """The accounts and regions that have targets."""
        return sorted({key[:2] for key in list(self.targets._data)})  # type: ignore[attr-defined]

    def target(self, key: Key) -> Target:
        """Return a target. Raises AwsError where it is not registered."""
        target = self.targets.get(key)
        if target is None:
            raise not_found("No scalable target registered", key)
        return target

    def variants(self, endpoint: str) -> frozenset[str]:
        """Return the variants of an endpoint that are scalable targets."""
        return frozenset(key.variant for key in self.targets if key.endpoint == endpoint)

    def scales_component(self, name: str) -> bool:
        """Whether an inference component is a scalable target."""
        return any(key.component == name for key in self.targets)

    def policies_of(self, key: Key) -> list[Policy]:
        """Return the policies of one target."""
        return [policy for policy in self.policies.values() if policy.key == key]

    def forget(self, key: Key) -> None:
        """Remove a target, and its policies with their alarms."""
        for policy in self.policies_of(key):
            delete_alarms(policy)
            del self.policies[(key, policy.name)]
        self.targets.pop(key, None)
