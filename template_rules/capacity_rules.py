"""Rules of the bounds between which instances are counted, and of their schedules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onboarding.schedule import EXAMPLES, schedule_fault
from template_rules import hosting
from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.scaling_rules import TARGET, VARIANT_DIMENSIONS, variant_id
from template_rules.template import Resource, Template
from template_rules.values import at, fields, number, objects, text


@rule("RH160", "a minimum is at most its maximum")
def minimum_over_maximum(template: Template) -> Iterator[Problem]:
    for target in template.of_type(TARGET):
        yield from _minimum_over_maximum(target, target.properties, "")
        for index, action in objects(target.properties.get("ScheduledActions")):
            path = f"ScheduledActions[{index}].ScalableTargetAction."
            yield from _minimum_over_maximum(
                target, fields(action.get("ScalableTargetAction")), path
            )
    for variant in hosting.all_variants(template):
        managed = fields(variant.properties.get("ManagedInstanceScaling"))
        least, most = (
            number(managed.get("MinInstanceCount")),
            number(managed.get("MaxInstanceCount")),
        )
        if least is not None and most is not None and least > most:
            path = f"{variant.path}.ManagedInstanceScaling.MinInstanceCount"
            yield _over(variant.config, path, least, most)


@rule(
    "RH170",
    "a variant that answers at once keeps an instance: only asynchronous endpoints and components scale to zero",
)
def scaled_to_zero(template: Template) -> Iterator[Problem]:
    for target in template.of_type(TARGET):
        match = variant_id(target)
        endpoint = None if match is None else hosting.endpoint_named(template, match["endpoint"])
        dimension = text(target.properties.get("ScalableDimension"))
        if (
            endpoint is None
            or match is None
            or dimension != VARIANT_DIMENSIONS[0]
            or hosting.is_asynchronous(template, endpoint) is not False
        ):
            continue
        variant = hosting.variant_named(template, match["endpoint"], match["variant"])
        if variant is not None and "ManagedInstanceScaling" in variant.properties:
            continue
        actions = objects(target.properties.get("ScheduledActions"))
        found = [("MinCapacity", target.properties.get("MinCapacity"))]
        found += [
            (
                f"ScheduledActions[{index}].ScalableTargetAction.MinCapacity",
                at(action, "ScalableTargetAction", "MinCapacity"),
            )
            for index, action in actions
        ]
        for path, least in found:
            if number(least) == 0:
                what = "a variant that answers at once does not scale to zero"
                yield Problem(
                    resource=target.logical_id,
                    path=path,
                    what=what,
                    value="0",
                    allowed="at least 1",
                    way_out="write 1",
                )


@rule("RH171", "the first instance count lies between the bounds of scaling", "warning")
def first_count_out_of_bounds(template: Template) -> Iterator[Problem]:
    for target in template.of_type(TARGET):
        match = variant_id(target)
        variant = (
            None
            if match is None
            else hosting.variant_named(template, match["endpoint"], match["variant"])
        )
        first = None if variant is None else number(variant.properties.get("InitialInstanceCount"))
        least, most = (
            number(target.properties.get("MinCapacity")),
            number(target.properties.get("MaxCapacity")),
        )
        if (
            first is None
            or variant is None
            or least is None
            or most is None
            or least <= first <= most
        ):
            continue
        if least <= most:
            yield Problem(
                resource=variant.config.logical_id,
                path=f"{variant.path}.InitialInstanceCount",
                what=f"scaling by {target.logical_id} changes the count as soon as it begins",
                value=f"{first:g}",
                allowed=f"{least:g} to {most:g}",
                way_out="start within the bounds",
            )


@rule("RH172", "a scheduled action says when, and sets a bound")
def ill_formed_schedule(template: Template) -> Iterator[Problem]:
    for target in template.of_type(TARGET):
        for index, action in objects(target.properties.get("ScheduledActions")):
            path, schedule = f"ScheduledActions[{index}]", text(action.get("Schedule"))
            wrong = None if schedule is None else schedule_fault(schedule)
            if wrong is not None:
                what = f"the schedule is not one that Application Auto Scaling reads: it {wrong}"
                yield Problem(
                    resource=target.logical_id,
                    path=f"{path}.Schedule",
                    what=what,
                    value=schedule,
                    allowed=EXAMPLES,
                    way_out="write it so",
                )
            bounds = action.get("ScalableTargetAction")
            if bounds is None or (
                isinstance(bounds, dict) and not {"MinCapacity", "MaxCapacity"} & set(bounds)
            ):
                what = "the scheduled action sets neither MinCapacity nor MaxCapacity"
                yield Problem(
                    resource=target.logical_id,
                    path=f"{path}.ScalableTargetAction",
                    what=what,
                    way_out="set one",
                )


def _minimum_over_maximum(target: Resource, holder: Any, path: str) -> Iterator[Problem]:
    least, most = number(holder.get("MinCapacity")), number(holder.get("MaxCapacity"))
    if least is not None and most is not None and least > most:
        yield _over(target, f"{path}MinCapacity", least, most)


def _over(resource: Resource, path: str, least: float, most: float) -> Problem:
    what = "the minimum is over the maximum"
    allowed = f"at most {most:g}, the maximum"
    return Problem(
        resource=resource.logical_id,
        path=path,
        what=what,
        value=f"{least:g}",
        allowed=allowed,
        way_out="swap or change them",
    )
