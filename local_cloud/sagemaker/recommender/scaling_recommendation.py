"""GetScalingConfigurationRecommendation, from a recommendation of a completed job; pure.

How SageMaker computes its answer is not published: here the target is the plateau's invocations
by AWS's formula for target tracking (developer guide, "Load testing", SAFETY_FACTOR 0.5), and the
counts are what the anticipated traffic needs at that target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from local_cloud.protocol.errors import present_fields, validation_error

SAFETY_FACTOR = 0.5
COOL_DOWN_SECONDS = 300
PERCENT_PER_CORE = 50
Request = Mapping[str, Any]


def scaling_recommendation(request: Request, recommendation: Request) -> dict[str, Any]:
    """Return the reply for one recommendation."""
    metrics = recommendation["Metrics"]
    objective = request.get("ScalingPolicyObjective") or {}
    least, most = (objective.get(f"{word}InvocationsPerMinute") for word in ("Min", "Max"))
    if least is not None and most is not None and least > most:
        raise validation_error(
            f"MinInvocationsPerMinute {least} must not exceed MaxInvocationsPerMinute {most}."
        )
    target = max(1.0, metrics["MaxInvocations"] * SAFETY_FACTOR)
    return present_fields(
        InferenceRecommendationsJobName=request["InferenceRecommendationsJobName"],
        RecommendationId=recommendation["RecommendationId"],
        EndpointName=recommendation["EndpointConfiguration"]["EndpointName"],
        TargetCpuUtilizationPerCore=request.get("TargetCpuUtilizationPerCore") or PERCENT_PER_CORE,
        ScalingPolicyObjective=request.get("ScalingPolicyObjective"),
        Metric={
            "InvocationsPerInstance": metrics["MaxInvocations"],
            "ModelLatency": metrics["ModelLatency"],
        },
        DynamicScalingConfiguration=present_fields(
            MinCapacity=_instances(least, target),
            MaxCapacity=_instances(most, target),
            ScaleInCooldown=COOL_DOWN_SECONDS,
            ScaleOutCooldown=COOL_DOWN_SECONDS,
            ScalingPolicies=[
                {
                    "TargetTracking": {
                        "MetricSpecification": {
                            "Predefined": {
                                "PredefinedMetricType": "SageMakerVariantInvocationsPerInstance"
                            }
                        },
                        "TargetValue": target,
                    }
                }
            ],
        ),
    )


def _instances(invocations: int | None, target: float) -> int | None:
    return None if invocations is None else max(1, math.ceil(invocations / target))
