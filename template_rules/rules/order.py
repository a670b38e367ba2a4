"""Rules of the order in which CloudFormation creates resources that name each other literally."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.hosting import (
    ALARM,
    COMPOSITE,
    ENDPOINT,
    MODEL,
    POLICY,
    TARGET,
    all_variants,
    config_of,
    rollback_alarms,
    scaled_endpoint,
    watched_endpoints,
)
from template_rules.policies import ROLE, attached_policies
from template_rules.rule import TemplateRule
from template_rules.templates import Assembly, Problem, Resource


class CreationOrder(TemplateRule):
    """A resource that names another by its name is created after it."""

    id = "E9173"
    shortdesc = "Resource that may be created before what it needs"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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
    for model in assembly.of_type(MODEL):
        role = assembly.find(model.properties.get("ExecutionRoleArn"), ROLE)
        for policy in () if role is None else attached_policies(assembly, role):
            yield model, policy
    for variant in all_variants(assembly):
        for _, name in variant.model_names:
            found = assembly.find(name, MODEL)
            if found is not None:
                yield variant.config, found
    for endpoint in assembly.of_type(ENDPOINT):
        config = config_of(assembly, endpoint)
        if config is not None:
            yield endpoint, config
        for _, name in rollback_alarms(endpoint):
            alarm = assembly.find(name, ALARM, COMPOSITE)
            if alarm is not None:
                yield endpoint, alarm
    for target in assembly.of_type(TARGET):
        scaled = scaled_endpoint(assembly, target)
        if scaled is not None:
            yield target, scaled
    yield from _policies(assembly)
    yield from _alarms(assembly)


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
        for endpoint in assembly.of_type(ENDPOINT)
        for _, name in rollback_alarms(endpoint)
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
