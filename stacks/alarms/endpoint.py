"""The alarms of an endpoint, and which of them take a new version back."""

from __future__ import annotations

from collections.abc import Iterable

from onboarding.aws_limits import ROLLBACK_ALARM_COUNT
from onboarding.deployment import Deployment
from onboarding.metrics import Alarm
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.generation_alarms import generation_alarms
from stacks.alarms.host_alarms import cache_alarms, host_alarms
from stacks.alarms.request_alarms import error_alarms, latency_alarms, load_alarms, queue_alarms

ROLLBACK_ORDER = (
    "server-errors",
    "component-errors",
    "no-answers",
    "stream-errors",
    "first-token",
    "latency",
    "client-errors",
)
"""SageMaker watches ten alarms: with many variants those whose kinds are first here."""


def endpoint_alarms(deployment: Deployment | GenerationDeployment) -> tuple[Alarm, ...]:
    """Every alarm, by variant, then those of the endpoint as a whole."""
    if isinstance(deployment, GenerationDeployment):
        return tuple(generation_alarms(deployment))
    kinds = (error_alarms, latency_alarms, host_alarms, load_alarms, cache_alarms)
    of_variants = (
        alarm
        for variant in deployment.variants
        for kind in kinds
        for alarm in kind(deployment, variant)
    )
    return (*of_variants, *queue_alarms(deployment))


def rollback_alarms(alarms: Iterable[Alarm]) -> list[Alarm]:
    """Return those that take a new version back, the gravest first.

    What only a client can have caused must not.
    """
    found = [alarm for alarm in alarms if alarm.rolls_back]
    return sorted(found, key=lambda alarm: ROLLBACK_ORDER.index(alarm.kind))


def watched_in_rollouts(alarms: Iterable[Alarm]) -> tuple[str, ...]:
    """Return the names of those that SageMaker watches during a rollout, ten at most."""
    return tuple(alarm.name for alarm in rollback_alarms(alarms)[:ROLLBACK_ALARM_COUNT])
