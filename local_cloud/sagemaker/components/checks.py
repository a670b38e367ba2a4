"""Refusals of inference components beyond SageMaker's API model; pure.

Source: SageMaker API reference, CreateInferenceComponent and UpdateInferenceComponent; that no copy
at creation is refused: stdapi-ai/stdapi.ai#43.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.checks import check_image, hosts_components, instance_types
from local_cloud.sagemaker.hosting.rollout import rollout
from local_cloud.sagemaker.platform_data import copy_requirements, type_capacity
from onboarding.aws_limits import STEP_PERCENT

Request = Mapping[str, Any]
FindModel = Callable[[str], Request]
FOR_COPIES = ("ComputeResourceRequirements", "StartupParameters", "ModelName", "SchedulingConfig")
"""Of a specification, what an adapter takes from its base."""


def the_specification(request: Request) -> Request:
    """Return the one specification of a request; several by instance type are not run here."""
    one, several = request.get("Specification"), request.get("Specifications")
    if (one is None) == (several is None):
        found = "neither" if one is None else "both"
        raise validation_error(
            f"Exactly one of Specification and Specifications must be specified, found {found}."
        )
    if one is None:
        raise validation_error("The local cloud runs no component with several Specifications.")
    return dict(one)


def component_variant(request: Request, variants: Sequence[Request], endpoint: str) -> Request:
    """Return the variant that a component names, or the endpoint's only one."""
    if not all(map(hosts_components, variants)):
        raise validation_error(
            f"Endpoint {endpoint} does not host inference components: its variants name models."
        )
    name = request.get("VariantName")
    if name is None and len(variants) == 1:
        return variants[0]
    for variant in variants:
        if variant["VariantName"] == name:
            return variant
    known = ", ".join(variant["VariantName"] for variant in variants)
    raise validation_error(
        f"VariantName must name a variant of endpoint {endpoint}, which has {known}; found {name}."
    )


def check_creation(request: Request, variant: Request, find_model: FindModel) -> None:
    """Refuse a component that serves a model of its own and that SageMaker would refuse."""
    runtime = request.get("RuntimeConfig")
    if runtime is None:
        raise validation_error("RuntimeConfig is required unless the component is an adapter.")
    if runtime["CopyCount"] < 1:
        raise validation_error(
            "CopyCount must be greater than or equal to 1 when an inference component is created."
        )
    check_specification(the_specification(request), variant, find_model)


def check_specification(specification: Request, variant: Request, find_model: FindModel) -> None:
    """Refuse a specification whose model is unknown, or that no instance of the variant holds."""
    model, container = specification.get("ModelName"), specification.get("Container")
    if (model is None) == (container is None):
        found = "neither" if model is None else "both"
        raise validation_error(
            f"Exactly one of ModelName and Container must be specified, found {found}."
        )
    if model is not None:
        find_model(model)
    elif container is not None:
        if container.get("Image") is None:
            raise validation_error("Container requires Image unless the component is an adapter.")
        check_image(container["Image"])
    wanted = specification.get("ComputeResourceRequirements")
    if wanted is None:
        raise validation_error(
            "ComputeResourceRequirements is required unless the component is an adapter."
        )
    most = wanted.get("MaxMemoryRequiredInMb")
    if most is not None and most < wanted["MinMemoryRequiredInMb"]:
        raise validation_error(
            f"MaxMemoryRequiredInMb {most} is less than MinMemoryRequiredInMb "
            f"{wanted['MinMemoryRequiredInMb']}."
        )
    needed = copy_requirements(specification)
    for name in instance_types(variant):
        capacity = type_capacity(name)
        if capacity is not None and not needed.fits(capacity):
            raise validation_error(
                f"One copy needs {needed.accelerators:g} accelerators, {needed.cpu_cores:g} CPU "
                f"cores and {needed.memory_mb:g} MB, and {name} has {capacity.accelerators:g}, "
                f"{_known(capacity.cpu_cores)} and {_known(capacity.memory_mb)}."
            )


def _known(number: float) -> str:
    return f"{number:g}" if number else "an unknown number"


def check_adapter(request: Request) -> None:
    """Refuse an adapter with what its base decides, or without its files."""
    specification = the_specification(request)
    faults = [name for name in FOR_COPIES if specification.get(name) is not None]
    faults += ["RuntimeConfig"] if request.get("RuntimeConfig") is not None else []
    if faults:
        raise validation_error(
            f"{', '.join(faults)} must not be specified with BaseInferenceComponentName: an "
            "adapter is served by the copies of its base."
        )
    container = specification.get("Container") or {}
    if container.get("ArtifactUrl") is None or container.get("Image") is not None:
        raise validation_error(
            "An adapter's Container takes ArtifactUrl, which is required, and no Image."
        )


def check_rolling(deployment: Request | None, copies: int) -> None:
    """Refuse a batch beyond half of several copies, and waits that are too long.

    Whether AWS counts like this where a component has one copy is not published.
    """
    if not deployment:
        return
    policy = deployment["RollingUpdatePolicy"]
    size, (low, high) = policy["MaximumBatchSize"], STEP_PERCENT["rolling"]
    kind, value = size["Type"], size["Value"]
    if kind == "CAPACITY_PERCENT" and not low <= value <= high:
        raise validation_error(
            f"MaximumBatchSize must be {low:g}-{high:g}% of the copies, found {value}%."
        )
    if kind == "COPY_COUNT" and not 1 <= value <= max(1, copies * high // 100):
        raise validation_error(
            f"MaximumBatchSize must be at most {high:g}% of the copies, found {value} of {copies}."
        )
    plan = rollout(deployment, {"copies": max(copies, 1)})
    waits = plan.wait_seconds * len(plan.batches)
    if plan.limit_seconds is not None and plan.limit_seconds <= waits:
        raise validation_error(
            "MaximumExecutionTimeoutInSeconds must be larger than the total waiting time of the "
            f"deployment: {plan.limit_seconds:g} is not larger than {waits:g}."
        )
