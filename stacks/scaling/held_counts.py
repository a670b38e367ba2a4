"""Fixed instance counts beside moving ones, held by application auto scaling."""

from __future__ import annotations

from typing import Any

from onboarding import names
from onboarding.deployment import Deployment
from stacks.scaling.properties import DIMENSION, NAMESPACE, TARGET
from stacks.scaling.variants import scaled_variants, variant_id


def held_counts(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """A scalable target, by logical id, of each production variant whose count is fixed where
    another variant's moves.

    An update of such an endpoint retains every count, so that a changed fixed one would never take:
    the bounds of its target,
    which are that count, bring it there. The logical id is the one that the target has once the
    variant scales.
    """
    scaled = scaled_variants(deployment)
    fixed = [
        variant
        for variant in deployment.variants
        if variant.role == "variant" and variant not in scaled
    ]
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    return {
        variant_id(variant, "ScalableTarget"): {
            "Type": TARGET,
            "DependsOn": ["Endpoint"],
            "Properties": {
                "ServiceNamespace": NAMESPACE,
                "ScalableDimension": DIMENSION,
                "ResourceId": f"endpoint/{endpoint}/variant/{variant.name}",
                "MinCapacity": variant.scaling.min,
                "MaxCapacity": variant.scaling.max,
            },
        }
        for variant in (fixed if scaled else ())
    }
