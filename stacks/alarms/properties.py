"""CloudFormation properties of an endpoint's alarms, and which of them take a new version back."""

from __future__ import annotations

from typing import Any

from onboarding.aws_limits import ROLLBACK_ALARM_COUNT
from onboarding.deployment import Deployment
from stacks.alarms.alarm import Alarm, alarm_name, logical_id, properties, rollback_alarms
from stacks.alarms.host_alarms import cache_alarms, gpu_alarms, host_alarms
from stacks.alarms.request_alarms import error_alarms, latency_alarms, load_alarms, queue_alarms


def alarms(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Every `AWS::CloudWatch::Alarm` of an endpoint, by logical id."""
    of_metrics = {
        logical_id(alarm): properties(deployment, alarm) for alarm in endpoint_alarms(deployment)
    }
    return of_metrics | gpu_alarms(deployment)


def rollback_alarm_ids(deployment: Deployment) -> tuple[str, ...]:
    """Logical ids of the alarms that take a new version back, the gravest first.

    What only a client can have caused must not.
    """
    return tuple(map(logical_id, rollback_alarms(endpoint_alarms(deployment))))


def watched_alarm_names(deployment: Deployment) -> tuple[str, ...]:
    """The names of those that SageMaker watches during a rollout."""
    watched = rollback_alarms(endpoint_alarms(deployment))[:ROLLBACK_ALARM_COUNT]
    return tuple(alarm_name(deployment, alarm.kind, alarm.variant) for alarm in watched)


def endpoint_alarms(deployment: Deployment) -> tuple[Alarm, ...]:
    """Every alarm, by variant, then those of the endpoint as a whole."""
    kinds = (error_alarms, latency_alarms, host_alarms, load_alarms, cache_alarms)
    of_variants = (
        alarm
        for variant in deployment.variants
        for kind in kinds
        for alarm in kind(deployment, variant)
    )
    return (*of_variants, *queue_alarms(deployment))
