"""Rules of how one resource names another: by its name, never by an ARN, and after it was made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from template_rules import hosting
from template_rules.catalogue import name_property
from template_rules.finding import Problem
from template_rules.metric_uses import metric_uses
from template_rules.rule import rule
from template_rules.scaling_rules import POLICY, TARGET, scaled_thing, variant_id
from template_rules.template import Resource, Template
from template_rules.values import at, labels, objects, shown, unknown

WATCHERS = ("AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", POLICY)
"""What may be made before what it watches; a policy waits for its target."""


@rule("RH173", "what names another resource by its literal name is made after it", "warning")
def made_too_early(template: Template) -> Iterator[Problem]:
    for resource, path, other in _literal_names(template):
        if resource is not other and not template.waits_for(resource.logical_id, other.logical_id):
            noun = other.type.rsplit("::", 1)[-1]
            yield Problem(
                resource=resource.logical_id,
                path=path,
                what=f"it names {noun} {other.logical_id}, and may be made before it",
                value=shown(other.name),
                way_out=f"write DependsOn: {other.logical_id}",
            )


@rule("RH174", "an endpoint, a config and a model are named by their names: Ref gives an ARN")
def arn_for_a_name(template: Template) -> Iterator[Problem]:
    for resource, path, name, types in _names(template):
        for other in template.of_type(*types):
            if name == unknown(other.logical_id):
                noun = other.type.rsplit("::", 1)[-1]
                yield Problem(
                    resource=resource.logical_id,
                    path=path,
                    what=f"Ref {other.logical_id} is the ARN of the {noun}, and a name is needed",
                    way_out=f"write Fn::GetAtt [{other.logical_id}, {name_property(other.type)}]",
                )


def _literal_names(template: Template) -> Iterator[tuple[Resource, str, Resource]]:
    for policy in template.of_type(POLICY):
        for target in template.of_type(TARGET):
            if "ResourceId" in policy.properties and scaled_thing(policy) == scaled_thing(target):
                yield policy, "ResourceId", target
    for resource, path, name, types in _names(template):
        other = (
            template.named(name, *types)
            if isinstance(name, str) and not labels(name) and resource.type not in WATCHERS
            else None
        )
        if other is not None:
            yield resource, path, other


def _names(template: Template) -> Iterator[tuple[Resource, str, Any, tuple[str, ...]]]:
    """(resource, path, name, types) of everywhere that names an endpoint, a config, a model or an
    alarm.
    """
    for variant in hosting.all_variants(template):
        for path, name in variant.model_names:
            yield variant.config, path, name, (hosting.MODEL,)
    for endpoint in template.of_type(hosting.ENDPOINT):
        yield (
            endpoint,
            "EndpointConfigName",
            endpoint.properties.get("EndpointConfigName"),
            (hosting.ENDPOINT_CONFIG,),
        )
        path = "DeploymentConfig.AutoRollbackConfiguration.Alarms"
        for _, alarm in objects(at(endpoint.properties, *path.split("."))):
            yield endpoint, path, alarm.get("AlarmName"), ("AWS::CloudWatch::Alarm",)
    for resource in template.of_type(TARGET, POLICY):
        match = variant_id(resource)
        if match is not None:
            yield resource, "ResourceId", match["endpoint"], (hosting.ENDPOINT,)
    for use in metric_uses(template):
        if use.dimensions is not None and "EndpointName" in use.dimensions:
            path = f"{use.path}{'.' if use.path else ''}Dimensions"
            yield use.resource, path, use.dimensions["EndpointName"], (hosting.ENDPOINT,)
