"""Rules of a template and its next version: what SageMaker or CloudFormation refuses to change, and
what would be lost.
"""

from __future__ import annotations

from collections.abc import Iterator

from template_rules import hosting
from template_rules.catalogue import name_property, property_schemas
from template_rules.finding import Problem
from template_rules.rule import change_rule
from template_rules.scaling_rules import TARGET, variant_id
from template_rules.template import Resource, Template
from template_rules.values import is_known, shown

STATEFUL = (
    "AWS::S3::Bucket",
    "AWS::KMS::Key",
    "AWS::ECR::Repository",
    "AWS::DynamoDB::Table",
    "AWS::SNS::Topic",
)


@change_rule(
    "RH280",
    "a variant keeps its name from version to version: deployment guardrails know it by that",
)
def variant_renamed(previous: Template, now: Template) -> Iterator[Problem]:
    for _, _, before, config in _endpoints(previous, now):
        old, new = (
            {str(each.name) for each in hosting.variants(each_config)}
            for each_config in (before, config)
        )
        gone, come = sorted(old - new), sorted(new - old)
        if gone and come and all(map(is_known, (*gone, *come))):
            what = f"variant {', '.join(gone)} is gone and {', '.join(come)} has come: UpdateEndpoint refuses a new name"
            yield Problem(
                resource=config.logical_id,
                path="ProductionVariants",
                what=what,
                allowed=", ".join(sorted(old)),
                way_out="keep the name",
            )


@change_rule(
    "RH281",
    "a variant that is scaled keeps its instance type: UpdateEndpoint refuses another until it is deregistered",
)
def instance_type_of_scaled_variant(previous: Template, now: Template) -> Iterator[Problem]:
    for old_endpoint, _, before, config in _endpoints(previous, now):
        scaled = {str(name) for name in _scaled_variants(previous, old_endpoint)}
        old = {str(each.name): each for each in hosting.variants(before)}
        for variant in hosting.variants(config):
            earlier = old.get(str(variant.name))
            if earlier is None or str(variant.name) not in scaled:
                continue
            types, earlier_types = (
                [name for _, name in each.instance_types] for each in (variant, earlier)
            )
            if types and earlier_types and sorted(types) != sorted(earlier_types):
                yield Problem(
                    resource=config.logical_id,
                    path=f"{variant.path}.InstanceType",
                    what=f"variant {shown(variant.name)} is registered for scaling, and its instance type changes",
                    value=", ".join(types),
                    allowed=", ".join(earlier_types),
                    way_out="deploy once without the scalable target and its policies, then change the type, then scale again",
                )


@change_rule("RH282", "what keeps data keeps its logical id")
def stateful_resource_gone(previous: Template, now: Template) -> Iterator[Problem]:
    for resource in previous.of_type(*STATEFUL):
        if resource.logical_id not in now.resources:
            noun = resource.type.rsplit("::", 1)[-1]
            what = f"the {noun} {resource.logical_id} of the previous version is gone, and a renamed one is a new, empty one"
            yield Problem(
                path=f"Resources.{resource.logical_id}",
                what=what,
                way_out="keep its logical id, or acknowledge the loss",
            )


@change_rule("RH283", "a resource with a name of its own is not replaced: CloudFormation refuses")
def named_resource_replaced(previous: Template, now: Template) -> Iterator[Problem]:
    for before, resource in _kept(previous, now):
        schema, named = property_schemas().get(resource.type), name_property(resource.type)
        if (
            schema is None
            or named is None
            or named not in resource.properties
            or before.name != resource.name
        ):
            continue
        for name in schema["createOnly"]:
            if (
                name != named
                and "/" not in name
                and before.properties.get(name) != resource.properties.get(name)
            ):
                yield Problem(
                    resource=resource.logical_id,
                    path=name,
                    what=f"the change replaces the resource, whose {named} {shown(resource.name)} is taken until then",
                    way_out=f"give it another {named}, one that derives from content, or none",
                )


@change_rule("RH284", "a logical id keeps its type")
def type_changed(previous: Template, now: Template) -> Iterator[Problem]:
    for logical_id, resource in now.resources.items():
        before = previous.resources.get(logical_id)
        if before is not None and before.type != resource.type:
            what = "the resource has another type than before, and CloudFormation refuses"
            yield Problem(
                resource=logical_id,
                path="Type",
                what=what,
                value=resource.type,
                allowed=before.type,
                way_out="take another logical id",
            )


@change_rule("RH285", "an endpoint keeps the name that its callers know", "warning")
def endpoint_renamed(previous: Template, now: Template) -> Iterator[Problem]:
    for before, resource in _kept(previous, now):
        if (
            resource.type == hosting.ENDPOINT
            and before.name != resource.name
            and is_known(resource.name)
            and is_known(before.name)
        ):
            what = f"the endpoint is replaced: callers of {before.name} find nothing"
            yield Problem(
                resource=resource.logical_id,
                path="EndpointName",
                what=what,
                value=resource.name,
                allowed=before.name,
                way_out="keep the name, or add a second endpoint first",
            )


def _kept(previous: Template, now: Template) -> Iterator[tuple[Resource, Resource]]:
    for logical_id, resource in now.resources.items():
        before = previous.resources.get(logical_id)
        if before is not None and before.type == resource.type:
            yield before, resource


def _endpoints(
    previous: Template, now: Template
) -> Iterator[tuple[Resource, Resource, Resource, Resource]]:
    """(endpoint before, endpoint now, its config before, its config now) of every endpoint that
    both versions have.
    """
    for before, endpoint in _kept(previous, now):
        if endpoint.type == hosting.ENDPOINT:
            old, new = hosting.config_of(previous, before), hosting.config_of(now, endpoint)
            if old is not None and new is not None:
                yield before, endpoint, old, new


def _scaled_variants(template: Template, endpoint: Resource) -> Iterator[str]:
    for target in template.of_type(TARGET):
        match = variant_id(target)
        if match is not None and hosting.endpoint_named(template, match["endpoint"]) is endpoint:
            yield match["variant"]
