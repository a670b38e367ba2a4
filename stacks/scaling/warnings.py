"""What a person should know of an endpoint's scaling and memory before it is deployed, one sentence
each.
"""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from onboarding.memory_findings import memory_notes
from stacks.capacity.variant import capacity_warnings
from stacks.scaling.targets import backlog_target, gpu_target, invocations_target
from stacks.scaling.variants import fewest, scaled_variants


def scaling_warnings(deployment: Deployment) -> tuple[str, ...]:
    """Of every production variant: capacity that is not measured or misses the SLO, and schedules
    that only ever add instances.

    Then the evictions of a multi-model endpoint.
    """
    variants = [each for each in deployment.variants if each.role == "variant"]
    unmeasured = [
        warning for variant in variants for warning in capacity_warnings(deployment, variant)
    ]
    return (*unmeasured, *_raised_for_good(deployment), *memory_notes(deployment))


def _raised_for_good(deployment: Deployment) -> Iterator[str]:
    """A lower floor takes no instance away: a policy does, and a lower ceiling."""
    for variant in scaled_variants(deployment):
        if _has_policy(deployment, variant):
            continue
        if deployment.endpoint.asynchronous is not None and fewest(variant) == 0:
            yield (
                f"Endpoint '{deployment.name}', variant {variant.name}: the first request brings one instance, and nothing takes "
                "it back to 0 or adds another, since no policy follows the queue; measure the capacity."
            )
        floors = variant.scaling.schedule
        highest = max((each.min for each in floors), default=0)
        ceilings = [variant.scaling.max if each.max is None else each.max for each in floors]
        if any(each.min < highest for each in floors) and min(ceilings) >= highest:
            yield (
                f"Endpoint '{deployment.name}', variant {variant.name}: its schedule raises the count to {highest}, and nothing "
                "takes it back: a lower min removes no instance, and no policy follows the load; give the schedule with the "
                "lower min a max too, or measure the capacity."
            )


def _has_policy(deployment: Deployment, variant: Variant) -> bool:
    targets = (
        (backlog_target,)
        if deployment.endpoint.asynchronous is not None
        else (invocations_target, gpu_target)
    )
    return any(target(deployment, variant) is not None for target in targets)
