"""Rules of resources that name each other literally: what they name exists."""

from __future__ import annotations

from collections.abc import Iterator

from template_rules.hosting import (
    COMPONENT,
    ENDPOINT,
    ENDPOINT_CONFIG,
    MODEL,
    POLICY,
    TARGET,
    all_variants,
    config_of,
    scaled_component,
    scaled_variant,
    variants,
)
from template_rules.rule import rule
from template_rules.templates import Assembly, Finding, Resource
from template_rules.values import is_known


@rule("E9131", "Name of a resource that the template does not have")
def names_exist(assembly: Assembly) -> Iterator[Finding]:
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
