"""CloudFormation resources of a text generator's scaling, by logical id."""

from __future__ import annotations

from onboarding.deployment import VARIANT
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.alarm import Subject
from stacks.generation import sizes
from stacks.generation.properties import component_name
from stacks.scaling.resources import FromZero, Scaled, scaled_variant
from stacks.template import Resources

COOLDOWNS = (60, 300)
"""Seconds after scaling out, and in."""
COPY_FROM_ZERO = FromZero(
    unit="copy",
    fault="a request finds no copy",
    metric="NoCapacityInvocationFailures",
    statistic="Maximum",
    period=30,
    periods=1,
    missing="notBreaching",
    cooldown_seconds=60,
)
COMPONENT_METRIC = "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution"
VARIANT_METRIC = "SageMakerVariantConcurrentRequestsPerModelHighResolution"


def scaling_resources(deployment: GenerationDeployment) -> Resources:
    """Return the scalable target, the policies, and the alarm that brings the first copy back.

    None where the number of copies is fixed.
    """
    if not sizes.scales(deployment):
        return {}
    copies, is_component = deployment.spec.endpoint.copies, sizes.is_component(deployment)
    name = component_name(deployment)
    scaled = scaled_variant(deployment, VARIANT, "ScalableTarget")
    if is_component:
        dimension = "inference-component:DesiredCopyCount"
        scaled = Scaled(name=name, resource_id=f"inference-component/{name}", dimension=dimension)
    predefined = {"PredefinedMetricType": COMPONENT_METRIC if is_component else VARIANT_METRIC}
    metric = {"PredefinedMetricSpecification": predefined}
    waits_for = "InferenceComponent" if is_component else "Endpoint"
    found: Resources = {
        "ScalableTarget": scaled.target(waits_for, copies.min, copies.max),
        "ConcurrencyPolicy": scaled.tracking(
            "concurrency", sizes.target(deployment), metric, COOLDOWNS
        ),
    }
    if copies.min == 0:
        found["FromZeroPolicy"] = COPY_FROM_ZERO.policy(scaled)
        found["FromZeroAlarm"] = COPY_FROM_ZERO.alarm(
            f"{Subject(deployment).endpoint}-from-zero",
            [{"Name": "InferenceComponentName", "Value": name}],
            "FromZeroPolicy",
        )
    return found
