"""Rules of scaling: ordered bounds, at least one instance, valid schedules."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.rules.rule import ScalingCase, rule, rules_of
from onboarding.schedule import EXAMPLES, nearest_time_zone, schedule_fault, time_zones

_RAISE = "raise it to 1"
_ASYNCHRONOUS = "add `asynchronous: {}`, whose queue holds the requests meanwhile, or raise it to 1"


@rule("scaling")
def scaling_is_ordered(case: ScalingCase) -> Iterator[Fault]:
    """Bounds are ordered: min <= max."""
    scaling = case.scaling
    if scaling.min > scaling.max:
        yield case.document.at_change(("scaling", "min"), ("scaling", "max"), ("scaling",)).fault(
            "'scaling.min' is above 'scaling.max'",
            value=scaling.min,
            allowed=f"at most {scaling.max}",
            way_out="lower min, or raise max",
        )


@rule("scaling")
def zero_instances_need_a_queue(case: ScalingCase) -> Iterator[Fault]:
    """Only an asynchronous endpoint keeps requests while there is no instance."""
    way_out = _ASYNCHRONOUS if case.may_be_asynchronous else _RAISE
    if case.scaling.min == 0 and not case.asynchronous:
        yield case.document.at("scaling", "min").fault(
            "'scaling.min' is 0, and only an asynchronous endpoint scales to none",
            allowed="1 or more",
            way_out=way_out,
        )
    for index, floor in enumerate(case.scaling.schedule):
        if floor.min == 0 and not case.asynchronous:
            yield case.document.at("scaling", "schedule", index, "min").fault(
                f"'scaling.schedule[{index}].min' is 0, and only an asynchronous endpoint "
                "scales to none",
                allowed="1 or more",
                way_out=way_out,
            )


@rule("scaling")
def schedule_is_an_expression(case: ScalingCase) -> Iterator[Fault]:
    """Application Auto Scaling refuses another one when the stack is deployed."""
    for index, floor in enumerate(case.scaling.schedule):
        wrong = schedule_fault(floor.schedule)
        if wrong is not None:
            yield case.document.at("scaling", "schedule", index, "schedule").fault(
                f"'scaling.schedule[{index}].schedule' {wrong}",
                value=floor.schedule,
                allowed=f"cron(…), rate(…) or at(…), such as {EXAMPLES}",
                way_out="correct it",
            )


@rule("scaling")
def schedule_bounds_are_ordered(case: ScalingCase) -> Iterator[Fault]:
    """A floor above the ceiling that holds at that time."""
    for index, floor in enumerate(case.scaling.schedule):
        most = case.scaling.max if floor.max is None else floor.max
        if floor.min > most:
            named = "'scaling.max'" if floor.max is None else "its own max"
            path = ("scaling", "schedule", index, "min")
            yield case.document.at_change(path, ("scaling", "max")).fault(
                f"'scaling.schedule[{index}].min' is above {named}",
                value=floor.min,
                allowed=f"at most {most}",
                way_out="lower min, or give the schedule a `max:` of its own",
            )


@rule("scaling")
def schedules_differ(case: ScalingCase) -> Iterator[Fault]:
    """The order of two scheduled actions at one time is undefined."""
    first: dict[tuple[str, str], int] = {}
    for index, floor in enumerate(case.scaling.schedule):
        at = (floor.schedule, "UTC" if floor.timezone is None else floor.timezone)
        if first.setdefault(at, index) != index:
            yield case.document.at("scaling", "schedule", index, "schedule").fault(
                f"'scaling.schedule[{index}].schedule' is that of "
                f"scaling.schedule[{first[at]}], and either may come last",
                value=floor.schedule,
                way_out="keep one of the two, or give one another time",
            )


@rule("scaling")
def time_zone_is_known(case: ScalingCase) -> Iterator[Fault]:
    """A name of the IANA data base; unchecked where this machine has no such data."""
    for index, floor in enumerate(case.scaling.schedule):
        if floor.timezone is not None and time_zones() and floor.timezone not in time_zones():
            yield case.document.at("scaling", "schedule", index, "timezone").fault(
                f"'scaling.schedule[{index}].timezone' is no IANA time zone",
                value=floor.timezone,
                allowed="names such as UTC, Europe/Berlin, America/New_York",
                way_out=_time_zone_way_out(floor.timezone),
            )


def _time_zone_way_out(given: str) -> str:
    meant = nearest_time_zone(given)
    return (
        "choose one of the IANA data base, or leave it out for UTC"
        if meant is None
        else f"did you mean '{meant}'?"
    )


RULES = rules_of(globals())
