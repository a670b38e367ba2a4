"""The count of a text generator's copies that moves, and by what.

Source: AWS's notebook scale_down_to_zero of sagemaker-genai-hosting-examples (step policy, alarm).
"""

from __future__ import annotations

from dataclasses import replace

from onboarding.deployment import VARIANT
from onboarding.metrics import FromZero, ScaledCount, TargetTracking
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.alarm import Subject
from stacks.generation import sizes
from stacks.generation.alarms import component_metric
from stacks.generation.properties import component_name
from stacks.scaling.counts import TARGET_ID, variant_resource

SCALE_OUT_SECONDS, SCALE_IN_SECONDS = 60, 300
COMPONENT_METRIC = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
VARIANT_METRIC = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


def scaled_counts(deployment: GenerationDeployment) -> tuple[ScaledCount, ...]:
    """Return the copies, or the instances that are copies; none where their number is fixed."""
    if not sizes.scales(deployment):
        return ()
    copies, target = deployment.spec.endpoint.copies, sizes.target(deployment)
    endpoint, is_component = Subject(deployment).endpoint, sizes.is_component(deployment)
    instances = ScaledCount(
        id=TARGET_ID,
        name=endpoint,
        resource_id=variant_resource(endpoint, VARIANT),
        dimension="variant:DesiredInstanceCount",
        least=copies.min,
        most=copies.max,
        tracking=(
            TargetTracking(
                id="ConcurrencyPolicy",
                name="concurrency",
                metric=COMPONENT_METRIC if is_component else VARIANT_METRIC,
                value=target.value,
                derivation=target.derivation,
                scale_out_seconds=SCALE_OUT_SECONDS,
                scale_in_seconds=SCALE_IN_SECONDS,
            ),
        ),
    )
    if not is_component:
        return (instances,)
    component = component_name(deployment)
    return (
        replace(
            instances,
            name=component,
            resource_id=f"inference-component/{component}",
            dimension="inference-component:DesiredCopyCount",
            from_zero=_from_zero(deployment) if copies.min == 0 else None,
        ),
    )


def _from_zero(deployment: GenerationDeployment) -> FromZero:
    return FromZero(
        policy_id="FromZeroPolicy",
        alarm_id="FromZeroAlarm",
        alarm_name=f"{Subject(deployment).endpoint}-from-zero",
        unit="copy",
        fault="a request finds no copy",
        metric=component_metric(deployment, "NoCapacityInvocationFailures", "Maximum", period=30),
        periods=1,
        missing="notBreaching",
        cooldown_seconds=60,
    )
