"""What a person should know of an endpoint's scaling and memory before it is deployed, one sentence each."""

from __future__ import annotations

from onboarding.deployment import Deployment
from onboarding.planning.sentences import planning_notes
from stacks.capacity import capacity_warnings


def scaling_warnings(deployment: Deployment) -> tuple[str, ...]:
    """Capacity that is not measured or misses the SLO, of every production variant; evictions of a multi-model endpoint."""
    variants = [each for each in deployment.variants if each.role == "variant"]
    unmeasured = [warning for variant in variants for warning in capacity_warnings(deployment, variant)]
    return (*unmeasured, *planning_notes(deployment))
