"""The instance types that serve a model in an environment, and where its files say so."""

from __future__ import annotations

from onboarding.document import KeyPath
from onboarding.environment_view import EnvironmentView, shared_endpoint_name
from onboarding.model_spec import EndpointSpec
from onboarding.platform import InstanceType, ServingPlatform, host_images, instance_types
from onboarding.validation import Checked

Placed = tuple[KeyPath, InstanceType]


def serving_types(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """Every instance type that serves a model, and where its file says so."""
    if name in view.own_endpoints:
        return endpoint_types(view.own_endpoints[name], ("endpoint",))
    if name in view.joins:
        if view.joins[name].instance_type is not None:
            return joined_type(view, name)
        inherited: Checked[EndpointSpec] | None = view.own_endpoints.get(view.joins[name].joins)
    else:
        inherited = view.endpoints.get(shared_endpoint_name(view.models[name]) or "")
    return () if inherited is None else own_type(inherited, ("endpoint",))


def endpoint_types(endpoint: Checked[EndpointSpec], inside: KeyPath) -> tuple[Placed, ...]:
    """The instance types of an endpoint that have a row: its own, then its pools'."""
    pools = endpoint.spec.instance_pools if "instance_pools" in endpoint.sections else ()
    named = (
        ((*inside, "instance_pools", index, "instance_type"), pool.instance_type)
        for index, pool in enumerate(pools)
    )
    known = ((path, instance_types()[name]) for path, name in named if name in instance_types())
    return (*own_type(endpoint, inside), *known)


def own_type(endpoint: Checked[EndpointSpec], inside: KeyPath) -> tuple[Placed, ...]:
    """The instance type that an endpoint names, where it has a row."""
    known = (
        instance_types().get(endpoint.spec.instance_type)
        if "instance_type" in endpoint.sections
        else None
    )
    return () if known is None else (((*inside, "instance_type"), known),)


def joined_type(view: EnvironmentView, name: str) -> tuple[Placed, ...]:
    """The instance type that a model names which joins another."""
    named = view.joins[name].instance_type if name in view.joins else None
    known = None if named is None else instance_types().get(named)
    return () if known is None else ((("endpoint", "instance_type"), known),)


def host_driver(view: EnvironmentView, platform: ServingPlatform) -> int | None:
    """The NVIDIA driver of the environment's host image."""
    named = None
    if "inference_ami_version" in view.environment.sections:
        named = view.environment.spec.inference_ami_version
    image = host_images().get(platform.inference_ami_version or "" if named is None else named)
    return None if image is None else image.driver
