"""CloudFormation properties of an endpoint's alarms, and which of them take a new version back."""

from __future__ import annotations

from typing import Any

from onboarding.aws_limits import ROLLBACK_ALARM_COUNT
from onboarding.deployment import Deployment
from stacks.alarms.alarm import Alarm, alarm_name, properties
from stacks.alarms.cache_alarms import cache_alarms
from stacks.alarms.error_alarms import error_alarms
from stacks.alarms.gpu_alarms import gpu_alarms
from stacks.alarms.host_alarms import host_alarms
from stacks.alarms.request_alarms import latency_alarms, load_alarms, queue_alarms
from stacks.scaling.targets import variant_id

ROLLBACK_ORDER = ("ServerErrors", "NoAnswers", "Latency", "ClientErrors")
"""SageMaker watches ten: with many variants those that are first here."""


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
    return tuple(map(logical_id, _rollback_alarms(deployment)))


def watched_alarm_names(deployment: Deployment) -> tuple[str, ...]:
    """The names of those that SageMaker watches during a rollout."""
    return tuple(
        alarm_name(deployment, alarm.kind, alarm.variant)
        for alarm in _rollback_alarms(deployment)[:ROLLBACK_ALARM_COUNT]
    )


def endpoint_alarms(deployment: Deployment) -> tuple[Alarm, ...]:
    """Every alarm, by variant, then those of the endpoint as a whole."""
    kinds = (
        error_alarms,
        latency_alarms,
        host_alarms,
        load_alarms,
        cache_alarms,
    )
    of_variants = (
        alarm
        for variant in deployment.variants
        for kind in kinds
        for alarm in kind(deployment, variant)
    )
    return (*of_variants, *queue_alarms(deployment))


def logical_id(alarm: Alarm) -> str:
    """The own variant's is the part alone, so that it never changes."""
    return alarm.part if alarm.variant is None else variant_id(alarm.variant, alarm.part)


def _rollback_alarms(deployment: Deployment) -> list[Alarm]:
    alarms = [alarm for alarm in endpoint_alarms(deployment) if alarm.rolls_back]
    return sorted(alarms, key=lambda alarm: ROLLBACK_ORDER.index(alarm.part))
