"""Rules of a template and the version that is deployed now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from template_rules.hosting import (
    ENDPOINT,
    TARGET,
    config_of,
    scaled_endpoint,
    scaled_variant,
    variants,
)
from template_rules.resource_names import name_property
from template_rules.rules.stores import STATEFUL
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import is_known

Change = tuple[str, Problem]


def change_problems(now: Assembly, before: Assembly) -> Iterator[Change]:
    """Yield (rule id, problem) of what an update of these stacks would refuse or destroy."""
    pairs = list(_pairs(now, before))
    for resource, previous in pairs:
        if resource.type != previous.type:
            what, way_out = "CloudFormation refuses another type", "take another logical id"
            allowed = previous.type
            problem = resource.problem("Type", what, way_out, value=resource.type, allowed=allowed)
            yield "E9805", problem
        elif resource.type == ENDPOINT:
            yield from _endpoint_changes(now, before, resource, previous)
        if resource.type == previous.type:
            yield from _replacements(resource, previous)
    kept = {previous for _, previous in pairs}
    for previous in before.of_type(*STATEFUL):
        template = next((item for item in now.templates if _same(item.file, previous)), None)
        if previous not in kept and template is not None and template.resources:
            first = next(iter(template.resources.values()))
            what = f"{previous.type} {previous.logical_id} is gone; a renamed one is new and empty"
            yield "E9802", first.problem("Type", what, "keep its logical id")


def _same(file: str, previous: Resource) -> bool:
    return file == previous.template.file


def _pairs(now: Assembly, before: Assembly) -> Iterator[tuple[Resource, Resource]]:
    """Yield each resource with its previous version: of the same stack, or of the same file."""
    by_stack = {item.stack.name: item for item in before.templates if item.stack.name}
    by_file = {item.file: item for item in before.templates}
    single = len(now.templates) == len(before.templates) == 1
    for template in now.templates:
        previous = by_stack.get(template.stack.name or "") or by_file.get(template.file)
        if single:
            previous = before.templates[0]
        for logical_id, resource in template.resources.items():
            other = None if previous is None else previous.resources.get(logical_id)
            if other is not None:
                yield resource, other


def _endpoint_changes(
    now: Assembly, before: Assembly, endpoint: Resource, previous: Resource
) -> Iterator[Change]:
    config, old = config_of(now, endpoint), config_of(before, previous)
    if is_known(endpoint.name) and is_known(previous.name) and endpoint.name != previous.name:
        what = f"the endpoint is replaced, and callers of {previous.name} find nothing"
        way_out = "keep the name, or add a second endpoint first"
        yield "E9804", endpoint.problem("EndpointName", what, way_out, value=endpoint.name)
    if config is None or old is None:
        return
    same_name = is_known(config.name) and config.name == old.name
    if same_name and config.properties != old.properties:
        what = "the config changes under its name, and CloudFormation cannot replace it"
        way_out = "derive EndpointConfigName from the content"
        yield "E9800", config.problem("EndpointConfigName", what, way_out, value=config.name)
    if ("AsyncInferenceConfig" in config.properties) != ("AsyncInferenceConfig" in old.properties):
        what = "UpdateEndpoint does not change between real-time and asynchronous inference"
        way_out = "create an endpoint of another name"
        yield "E9801", config.problem("AsyncInferenceConfig", what, way_out)
    types = {variant.name: variant.instance_types for variant in variants(config)}
    for target in now.of_type(TARGET):
        match = scaled_variant(target)
        if match is None or scaled_endpoint(now, target) is not endpoint:
            continue
        for variant in variants(old):
            new = types.get(variant.name)
            if variant.name != match["variant"] or new is None or new == variant.instance_types:
                continue
            what = "UpdateEndpoint refuses another instance type while the variant is scaled"
            way_out = "remove the scalable target and its policies first, then change the type"
            yield "E9803", config.problem(variant.path, what, way_out, value=", ".join(new))


def _replacements(resource: Resource, previous: Resource) -> Iterator[Change]:
    """Yield changes of a property that replaces a resource whose name is taken until then."""
    named = name_property(resource.type)
    if named is None or named not in resource.properties or previous.name != resource.name:
        return
    for key in _create_only(resource.type) - {named}:
        if previous.properties.get(key) != resource.properties.get(key):
            what = f"the change replaces the resource, whose {named} is taken until then"
            way_out = f"give it another {named}, one that derives from content, or none"
            yield "E9806", resource.problem(key, what, way_out, value=resource.name)


def _create_only(resource_type: str) -> set[str]:
    """Return the top-level properties that cannot be updated, by AWS's schema in cfn-lint."""
    from cfnlint.schema import PROVIDER_SCHEMA_MANAGER

    schema: Mapping[str, list[str]] = PROVIDER_SCHEMA_MANAGER.get_resource_schema(
        "us-east-1", resource_type
    ).schema
    paths = (path.split("/properties/")[-1] for path in schema.get("createOnlyProperties", ()))
    return {path for path in paths if "/" not in path}
