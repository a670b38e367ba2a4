"""The alarms of an endpoint of engines, and which of them take a new version back."""

from __future__ import annotations

from onboarding.deployment import Deployment
from onboarding.metrics import Alarm
from stacks.alarms.alarm import rollback_alarms
from stacks.alarms.host_alarms import cache_alarms, gpu_alarms, host_alarms
from stacks.alarms.request_alarms import error_alarms, latency_alarms, load_alarms, queue_alarms


def endpoint_alarms(deployment: Deployment) -> tuple[Alarm, ...]:
    """Every alarm, by variant, then those of the endpoint as a whole, then those of each GPU."""
    kinds = (error_alarms, latency_alarms, host_alarms, load_alarms, cache_alarms)
    of_variants = (
        alarm
        for variant in deployment.variants
        for kind in kinds
        for alarm in kind(deployment, variant)
    )
    return (*of_variants, *queue_alarms(deployment), *gpu_alarms(deployment))


def rollback_alarm_ids(deployment: Deployment) -> tuple[str, ...]:
    """Logical ids of the alarms that take a new version back, the gravest first.

    What only a client can have caused must not.
    """
    return tuple(alarm.id for alarm in rollback_alarms(endpoint_alarms(deployment)))
