"""Rules of resources that name each other literally: they exist, and are created in order."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.hosting import (
    ALARM,
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    POLICY,
    TARGET,
    all_variants,
    config_of,
    rollback_alarms,
    scaled_component,
    scaled_variant,
    variants,
    watched_endpoints,
)
from template_rules.policies import ROLE, attached_policies
from template_rules.rule import rule
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import is_known


@rule("E9131", "Name of a resource that the template does not have")
def names_exist(assembly: Assembly) -> Iterator[Problem]:
    """A config, an endpoint, a component and a target name what the template has, by its name."""
    for resource, path, name, kinds in _names(assembly):
        names, found = assembly.names(*kinds), assembly.find(name, *kinds)
        if names and is_known(name) and name is not None and (found is None or found.name != name):
            what = f"no {kinds[0].rsplit('::', 1)[-1]} of this template has the name"
            yield resource.problem(path, what, value=name, allowed=names)
    for resource in assembly.of_type(TARGET, POLICY):
        match = scaled_variant(resource)
        endpoint = None if match is None else assembly.find(match["endpoint"], ENDPOINT)
        own = endpoint if endpoint and endpoint.template is resource.template else None
        named = [item.name for item in variants(config_of(assembly, own)) if not item.shadow]
        if match is not None and match["variant"] not in named and all(map(is_known, named)):
            what = "no endpoint of this template has such a production variant"
            yield resource.problem("ResourceId", what, value=match.group(), allowed=named)


@rule("E9173", "Resource that may be created before what it needs")
def creation_order(assembly: Assembly) -> Iterator[Problem]:
    """A resource that names another by its name is created after it."""
    for resource, other in _needed_before(assembly):
        template = resource.template
        if resource is other or other.template is not template:
            continue
        if not template.waits_for(resource.logical_id, other.logical_id):
            noun = other.type.rsplit("::", 1)[-1]
            what = f"it may be created before the {noun} that it needs"
            way_out = f"add DependsOn: {other.logical_id}"
            yield resource.problem("DependsOn", what, way_out, value=other.name)


def _needed_before(assembly: Assembly) -> Iterator[tuple[Resource, Resource]]:
    """Yield (resource, another that must exist before it)."""
    for resource, _, name, types in (*_names(assembly), *_rollbacks(assembly)):
        other = assembly.find(name, *types)
        if other is not None:
            yield resource, other
    for model in assembly.of_type(MODEL):
        role = assembly.find(model.properties.get("ExecutionRoleArn"), ROLE)
        for policy in () if role is None else attached_policies(assembly, role):
            yield model, policy
    yield from _policies(assembly)
    yield from _alarms(assembly)


Named = tuple[Resource, str, object, tuple[str, ...]]
"""A resource, the path of a name in it, the name, and the types of what it is a name of."""


def _names(assembly: Assembly) -> Iterator[Named]:
    """Yield what configs, endpoints, components and targets name."""
    for variant in all_variants(assembly):
        for path, name in variant.model_names:
            yield variant.config, path, name, (MODEL,)
    for endpoint in assembly.of_type(ENDPOINT):
        path = "EndpointConfigName"
        yield endpoint, path, endpoint.properties.get(path), (ENDPOINT_CONFIG,)
    for target in assembly.of_type(TARGET):
        match = scaled_variant(target)
        if match is not None:
            yield target, "ResourceId", match["endpoint"], (ENDPOINT,)
        component = scaled_component(assembly, target)
        if component is not None:
            yield target, "ResourceId", component.name, (COMPONENT,)
    for component in assembly.of_type(COMPONENT):
        for path, kind in (
            ("EndpointName", ENDPOINT),
            ("Specification.ModelName", MODEL),
            ("Specification.BaseInferenceComponentName", COMPONENT),
        ):
            yield component, path, component.at(path), (kind,)


def _rollbacks(assembly: Assembly) -> Iterator[Named]:
    for updated in assembly.of_type(ENDPOINT, COMPONENT):
        for path, name in rollback_alarms(updated):
            yield updated, path, name, (ALARM,)


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
    rollbacks = {assembly.find(name, ALARM) for _, _, name, _ in _rollbacks(assembly)}
    for alarm in assembly.of_type(ALARM):
        for name in () if alarm in rollbacks else watched_endpoints(alarm):
            endpoint = assembly.find(name, ENDPOINT)
            if endpoint is not None:
                yield alarm, endpoint
