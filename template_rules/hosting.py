"""Endpoints as SageMaker sees them: their configs, variants, models, and scaled variants."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from template_rules.templates import Assembly, Resource
from template_rules.values import fields, objects

ENDPOINT = "AWS::SageMaker::Endpoint"
ENDPOINT_CONFIG = "AWS::SageMaker::EndpointConfig"
MODEL = "AWS::SageMaker::Model"
COMPONENT = "AWS::SageMaker::InferenceComponent"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
ALARM = "AWS::CloudWatch::Alarm"
PROJECT, MACHINE = "AWS::CodeBuild::Project", "AWS::StepFunctions::StateMachine"
INSTANCE_COUNT = "sagemaker:variant:DesiredInstanceCount"
VARIANT_ID = re.compile(r"endpoint/(?P<endpoint>[^/]+)/variant/(?P<variant>[^/]+)")
COMPONENT_ID = re.compile(r"inference-component/(?P<component>[^/]+)")


@dataclass(frozen=True, eq=False)
class Variant:
    """One production or shadow variant of an endpoint config; `path` is its place there."""

    config: Resource
    path: str
    properties: dict[str, Any]
    shadow: bool

    @property
    def name(self) -> Any:
        """Return its name, perhaps a marked text; None when it has none."""
        return self.properties.get("VariantName")

    @property
    def model_names(self) -> tuple[tuple[str, Any], ...]:
        """Return (path, name) of the variant's model and of its pools' models."""
        found = [(f"{self.path}.ModelName", self.properties.get("ModelName"))]
        for index, pool in objects(self._pools):
            path = f"{self.path}.InstancePools[{index}].ModelNameOverride"
            found.append((path, pool.get("ModelNameOverride")))
        return tuple((path, name) for path, name in found if name is not None)

    @property
    def _pools(self) -> Any:
        return self.properties.get("InstancePools")


def variants(config: Resource | None) -> tuple[Variant, ...]:
    """Return the production variants, then the shadow variants of an endpoint config."""
    if config is None:
        return ()
    return tuple(
        Variant(config, f"{key}[{index}]", variant, key == "ShadowProductionVariants")
        for key in ("ProductionVariants", "ShadowProductionVariants")
        for index, variant in objects(config.properties.get(key))
    )


def all_variants(assembly: Assembly) -> Iterator[Variant]:
    """Yield the variants of every endpoint config."""
    for config in assembly.of_type(ENDPOINT_CONFIG):
        yield from variants(config)


def config_of(assembly: Assembly, endpoint: Resource | None) -> Resource | None:
    """Return the endpoint config of an endpoint, if a template has it."""
    if endpoint is None:
        return None
    return assembly.find(endpoint.properties.get("EndpointConfigName"), ENDPOINT_CONFIG)


def variant_named(assembly: Assembly, endpoint: Any, variant: Any) -> Variant | None:
    """Return the variant of an endpoint's name and its own; None when either is not there."""
    config = config_of(assembly, assembly.find(endpoint, ENDPOINT))
    return next((found for found in variants(config) if found.name == variant), None)


def containers(model: Resource) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path, container) of a model's containers."""
    primary = model.properties.get("PrimaryContainer")
    if isinstance(primary, dict):
        yield "PrimaryContainer", primary
    for index, container in objects(model.properties.get("Containers")):
        yield f"Containers[{index}]", container


def models_of(assembly: Assembly, variant: Variant) -> tuple[Resource, ...]:
    """Return the models of a variant, or of the components in it, that a template has."""
    named = [name for _, name in variant.model_names]
    for component in () if named else assembly.of_type(COMPONENT):
        of = component_variant(assembly, component)
        if of is not None and (of.config, of.path) == (variant.config, variant.path):
            named.append(component.at("Specification.ModelName"))
    found = (assembly.find(name, MODEL) for name in named)
    return tuple(model for model in found if model is not None)


def component_variant(assembly: Assembly, component: Resource) -> Variant | None:
    """Return the variant that an inference component runs in."""
    given = component.properties
    return variant_named(assembly, given.get("EndpointName"), given.get("VariantName"))


def scaled_component(assembly: Assembly, target: Resource) -> Resource | None:
    """Return the inference component of a scalable target; None for another resource."""
    identifier = target.properties.get("ResourceId")
    match = COMPONENT_ID.fullmatch(identifier) if isinstance(identifier, str) else None
    return None if match is None else assembly.find(match["component"], COMPONENT)


def endpoints_of(assembly: Assembly, model: Resource) -> tuple[Resource, ...]:
    """Return the endpoints that serve a model."""
    return tuple(
        endpoint
        for endpoint in assembly.of_type(ENDPOINT)
        for variant in variants(config_of(assembly, endpoint))
        if model in models_of(assembly, variant)
    )


def is_multi_model(model: Resource) -> bool:
    """Return True when a container of a model has the mode MultiModel."""
    return any(container.get("Mode") == "MultiModel" for _, container in containers(model))


def scaled_variant(resource: Resource) -> re.Match[str] | None:
    """Return endpoint and variant of a ResourceId; None for another resource."""
    identifier = resource.properties.get("ResourceId")
    return VARIANT_ID.fullmatch(identifier) if isinstance(identifier, str) else None


def scaled_endpoint(assembly: Assembly, target: Resource) -> Resource | None:
    """Return the endpoint of a scalable target or policy, if a template has it."""
    match = scaled_variant(target)
    return None if match is None else assembly.find(match["endpoint"], ENDPOINT)


def rollback_alarms(updated: Resource) -> list[tuple[str, Any]]:
    """Return (path, name) of the alarms that roll an update of an endpoint or component back."""
    path = "DeploymentConfig.AutoRollbackConfiguration.Alarms"
    alarms = objects(updated.at(path))
    return [(f"{path}[{index}].AlarmName", alarm.get("AlarmName")) for index, alarm in alarms]


def watched_endpoints(alarm: Resource) -> set[Any]:
    """Return the endpoint names in the dimensions of an alarm."""
    metrics = [alarm.properties]
    for _, query in objects(alarm.properties.get("Metrics")):
        metrics.append(fields(fields(query.get("MetricStat")).get("Metric")))
    found = (
        dimension.get("Value")
        for metric in metrics
        for _, dimension in objects(metric.get("Dimensions"))
        if dimension.get("Name") == "EndpointName"
    )
    return set(found)
