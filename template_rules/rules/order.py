"""Rules of the order in which CloudFormation creates resources that name each other literally."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.hosting import (
    ALARM,
    COMPONENT,
    COMPOSITE,
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    POLICY,
    TARGET,
    all_variants,
    rollback_alarms,
    scaled_component,
    scaled_variant,
    watched_endpoints,
)
from template_rules.policies import ROLE, attached_policies
from template_rules.rule import template_rule
from template_rules.templates import Assembly, Problem, Resource


@template_rule("E9173", "Resource that may be created before what it needs")
def creation_order(assembly: Assembly) -> Iterator[Problem]:
    """A resource that names another by its name is created after it."""
    for resource, other in needed_before(assembly):
        template = resource.template
        if resource is other or other.template is not template:
            continue
        if not template.waits_for(resource.logical_id, other.logical_id):
            noun = other.type.rsplit("::", 1)[-1]
            what = f"it may be created before the {noun} that it needs"
            way_out = f"add DependsOn: {other.logical_id}"
            yield resource.problem("DependsOn", what, way_out, value=other.name)


def needed_before(assembly: Assembly) -> Iterator[tuple[Resource, Resource]]:
    """Yield (resource, another that must exist before it)."""
    for resource, name, types in _names(assembly):
        other = assembly.find(name, *types)
        if other is not None:
            yield resource, other
    for model in assembly.of_type(MODEL):
        role = assembly.find(model.properties.get("ExecutionRoleArn"), ROLE)
        for policy in () if role is None else attached_policies(assembly, role):
            yield model, policy
    yield from _policies(assembly)
    yield from _alarms(assembly)


def _names(assembly: Assembly) -> Iterator[tuple[Resource, object, tuple[str, ...]]]:
    """Yield (resource, name, types) of what configs, endpoints and targets name."""
    for variant in all_variants(assembly):
        for _, name in variant.model_names:
            yield variant.config, name, (MODEL,)
    for endpoint in assembly.of_type(ENDPOINT):
        yield endpoint, endpoint.properties.get("EndpointConfigName"), (ENDPOINT_CONFIG,)
        for _, name in rollback_alarms(endpoint):
            yield endpoint, name, (ALARM, COMPOSITE)
    for target in assembly.of_type(TARGET):
        match = scaled_variant(target)
        if match is not None:
            yield target, match["endpoint"], (ENDPOINT,)
        component = scaled_component(assembly, target)
        if component is not None:
            yield target, component.name, (COMPONENT,)
    for component in assembly.of_type(COMPONENT):
        yield component, component.properties.get("EndpointName"), (ENDPOINT,)
        yield component, component.at("Specification.ModelName"), (MODEL,)
        yield component, component.at("Specification.BaseInferenceComponentName"), (COMPONENT,)
        for _, name in rollback_alarms(component):
            yield component, name, (ALARM, COMPOSITE)


def _policies(assembly: Assembly) -> Iterator[tuple[Resource, Resource]]:
    """A policy is put onto a registered target."""
    keys = ("ServiceNamespace", "ScalableDimension", "ResourceId")
    for policy in assembly.of_type(POLICY):
        for target in assembly.of_type(TARGET):
            same = [policy.properties.get(key) == target.properties.get(key) for key in keys]
            if "ResourceId" in policy.properties and all(same):
                yield policy, target


def _alarms(assembly: Assembly) -> Iterator[tuple[Resource, Resource]]:
    """An alarm that does not roll a deployment back rings for an endpoint that exists."""
    rollbacks = {
        assembly.find(name, ALARM, COMPOSITE)
        for updated in assembly.of_type(ENDPOINT, COMPONENT)
        for _, name in rollback_alarms(updated)
    }
    for alarm in assembly.of_type(ALARM):
        member = any(
            alarm.name in str(composite.properties.get("AlarmRule"))
            for composite in rollbacks
            if composite is not None
        )
        if alarm in rollbacks or member:
            continue
        for name in watched_endpoints(assembly, alarm):
            endpoint = assembly.find(name, ENDPOINT)
            if endpoint is not None:
                yield alarm, endpoint
