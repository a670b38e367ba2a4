"""What a person should know of an endpoint before it is deployed, one sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onboarding.deployment import Deployment
from stacks.alarms.properties import rollback_alarm_ids
from stacks.rollout.config import MOST_ALARMS
from stacks.scaling.variants import scaled_variants
from stacks.scaling.warnings import scaling_warnings


def endpoint_warnings(deployment: Deployment) -> tuple[str, ...]:
    """Every warning; each is deployed all the same."""
    return (
        *scaling_warnings(deployment),
        *_isolation(deployment),
        *unwatched_alarms(deployment, rollback_alarm_ids(deployment)),
        *_stuck_shadows(deployment),
    )


def _isolation(deployment: Deployment) -> Iterator[str]:
    if not deployment.endpoint.network_isolation:
        reaches = (
            "the internet"
            if deployment.environment.network is None
            else "what the VPC's routes reach"
        )
        yield (
            f"Endpoint '{deployment.name}': its containers reach {reaches}, since network_isolation is false; "
            "no server of ours needs that."
        )


def unwatched_alarms(deployment: Deployment, alarms: Sequence[str]) -> Iterator[str]:
    """Alarms that would take a rollout back, and are more than SageMaker watches."""
    if len(alarms) > MOST_ALARMS:
        left_out = ", ".join(alarms[MOST_ALARMS:])
        yield (
            f"Endpoint '{deployment.name}' has {len(alarms)} alarms that would take a rollout back, and SageMaker watches "
            f"{MOST_ALARMS}; these only notify: {left_out}."
        )


def _stuck_shadows(deployment: Deployment) -> Iterator[str]:
    """Nothing scales a shadow, and an update that retains the counts of the others retains its
    count too.
    """
    for variant in deployment.variants if scaled_variants(deployment) else ():
        if variant.role == "shadow":
            count = max(1, variant.scaling.min)
            yield (
                f"Endpoint '{deployment.name}': shadow {variant.name} begins with {count} instance{'s' if count > 1 else ''} and "
                "keeps that count; to change it, take the shadow out for one deployment."
            )
