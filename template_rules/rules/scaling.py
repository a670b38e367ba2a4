"""Rules of Application Auto Scaling: targets, bounds and schedules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from onboarding.schedule import EXAMPLES, nearest_time_zone, schedule_fault, time_zones
from template_rules.hosting import (
    ENDPOINT,
    INSTANCE_COUNT,
    POLICY,
    TARGET,
    VARIANT_ID,
    all_variants,
    config_of,
    scaled_endpoint,
    scaled_variant,
    variant_named,
    variants,
)
from template_rules.rule import resource_rule, template_rule
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import fields, is_known, is_unknown, known_text, number, objects


@template_rule("E9161", "ResourceId that names no variant")
def resource_id(assembly: Assembly) -> Iterator[Problem]:
    """A ResourceId has the form of its scalable dimension, and names a variant that exists."""
    for resource in assembly.of_type(TARGET, POLICY):
        identifier = resource.properties.get("ResourceId")
        dimension = known_text(resource.properties.get("ScalableDimension"))
        if not isinstance(identifier, str) or is_unknown(identifier):
            continue
        if dimension is None or not dimension.startswith("sagemaker:variant:"):
            continue
        match = VARIANT_ID.fullmatch(identifier)
        if match is None:
            what, allowed = "the ResourceId names no variant", "endpoint/<name>/variant/<name>"
            yield resource.problem(
                "ResourceId", what, "write it so", value=identifier, allowed=allowed
            )
            continue
        endpoint = scaled_endpoint(assembly, resource)
        found = variants(config_of(assembly, endpoint))
        names = [variant.name for variant in found if not variant.shadow]
        if endpoint is None and assembly.names(ENDPOINT) and is_known(match["endpoint"]):
            what, names = "no endpoint of this template has the name", assembly.names(ENDPOINT)
        elif names and is_known(match["variant"]) and match["variant"] not in names:
            what = "the endpoint has no such production variant"
        else:
            continue
        yield resource.problem(
            "ResourceId",
            what,
            "name one of these",
            value=identifier,
            allowed=names,
        )


@template_rule("E9163", "Scaling policy without a scalable target")
def policy_target(assembly: Assembly) -> Iterator[Problem]:
    """A policy scales a variant that a scalable target registers."""
    keys = ("ServiceNamespace", "ScalableDimension", "ResourceId")
    registered = [
        [target.properties.get(key) for key in keys] for target in assembly.of_type(TARGET)
    ]
    for policy in assembly.of_type(POLICY):
        scaled = [policy.properties.get(key) for key in keys]
        if "ResourceId" in policy.properties and scaled not in registered:
            yield policy.problem(
                "ResourceId",
                "no scalable target of this template registers what the policy scales",
                "make the three properties the same, or refer to the target",
                value=", ".join(map(str, scaled)),
            )


@template_rule("E9160", "MinCapacity above MaxCapacity, or 0 for a real-time endpoint")
def capacity_bounds(assembly: Assembly) -> Iterator[Problem]:
    """A minimum is at most its maximum, and 0 only where SageMaker scales to zero."""
    for target in assembly.of_type(TARGET):
        config = config_of(assembly, scaled_endpoint(assembly, target))
        asynchronous = config is None or "AsyncInferenceConfig" in config.properties
        dimension = target.properties.get("ScalableDimension")
        for path, bounds in _bounds(target):
            least, most = number(bounds.get("MinCapacity")), number(bounds.get("MaxCapacity"))
            if least is not None and most is not None and least > most:
                yield target.problem(
                    f"{path}MinCapacity",
                    "the minimum is over the maximum",
                    "change one of them",
                    value=f"{least:g}",
                    allowed=f"at most {most:g}",
                )
            if least == 0 and not asynchronous and dimension == INSTANCE_COUNT:
                what = "a variant of a real-time endpoint does not scale to zero"
                yield target.problem(f"{path}MinCapacity", what, "write 1", value="0")
    for variant in all_variants(assembly):
        managed = fields(variant.properties.get("ManagedInstanceScaling"))
        least, most = (number(managed.get(f"{end}InstanceCount")) for end in ("Min", "Max"))
        if least is not None and most is not None and least > most:
            path = f"{variant.path}.ManagedInstanceScaling.MinInstanceCount"
            what = "the minimum is over the maximum"
            yield variant.config.problem(path, what, "change one of them", value=f"{least:g}")


def _bounds(target: Resource) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "", target.properties
    for index, action in objects(target.properties.get("ScheduledActions")):
        path = f"ScheduledActions[{index}].ScalableTargetAction."
        yield path, fields(action.get("ScalableTargetAction"))


@template_rule("E9171", "InitialInstanceCount outside MinCapacity and MaxCapacity")
def first_count(assembly: Assembly) -> Iterator[Problem]:
    """The first instance count lies between the bounds of scaling."""
    for target in assembly.of_type(TARGET):
        match = scaled_variant(target)
        variant = match and variant_named(assembly, match["endpoint"], match["variant"])
        given = variant.properties.get("InitialInstanceCount") if variant else None
        first, least, most = (
            number(value)
            for value in (given, *map(target.properties.get, ("MinCapacity", "MaxCapacity")))
        )
        if not variant or first is None or least is None or most is None:
            continue
        if not max(least, 1) <= first <= max(most, 1):
            yield variant.config.problem(
                f"{variant.path}.InitialInstanceCount",
                "scaling changes the count as soon as it begins",
                "start within the bounds",
                value=f"{first:g}",
                allowed=f"{least:g} to {most:g}",
            )


@resource_rule(
    "E9172", "Scheduled action that Application Auto Scaling refuses or replaces", TARGET
)
def scheduled_actions(target: Resource) -> Iterator[Problem]:
    """A scheduled action has a name of its own, a schedule, a time zone and a bound."""
    actions = list(objects(target.properties.get("ScheduledActions")))
    names = Counter(known_text(action.get("ScheduledActionName")) for _, action in actions)
    for index, action in actions:
        path = f"ScheduledActions[{index}]"
        name = known_text(action.get("ScheduledActionName"))
        if name is not None and names[name] > 1:
            what = "two scheduled actions have one name, and the last one replaces the other"
            yield target.problem(f"{path}.ScheduledActionName", what, "rename one", value=name)
        yield from _schedule_problems(target, path, action)


def _schedule_problems(target: Resource, path: str, action: dict[str, Any]) -> Iterator[Problem]:
    schedule, zone = known_text(action.get("Schedule")), known_text(action.get("Timezone"))
    fault = None if schedule is None else schedule_fault(schedule)
    if fault is not None:
        what = f"Application Auto Scaling does not read the schedule: it {fault}"
        place = f"{path}.Schedule"
        yield target.problem(place, what, "write it so", value=schedule, allowed=EXAMPLES)
    if zone is not None and time_zones() and zone not in time_zones():
        meant = nearest_time_zone(zone)
        yield target.problem(
            f"{path}.Timezone",
            "the time zone is unknown",
            "name an IANA time zone" if meant is None else f"did you mean {meant}?",
            value=zone,
            allowed="names such as Europe/Berlin or UTC",
        )
    bounds = action.get("ScalableTargetAction")
    if bounds is None or not {"MinCapacity", "MaxCapacity"} & set(fields(bounds)):
        what = "the scheduled action sets neither MinCapacity nor MaxCapacity"
        yield target.problem(f"{path}.ScalableTargetAction", what, "set one")
