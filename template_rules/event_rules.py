"""Rules of EventBridge rules, Lambda functions and parameters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from onboarding.nearest import did_you_mean, nearest
from onboarding.schedule import schedule_fault
from template_rules.catalogue import lambda_runtimes
from template_rules.dashboard_body import body_of
from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.template import Template
from template_rules.values import fields, is_known, is_wholly_unknown, surely_has, text

EVENT_RULE = "AWS::Events::Rule"
TOP_FIELDS = (
    "version",
    "id",
    "detail-type",
    "source",
    "account",
    "time",
    "region",
    "resources",
    "detail",
    "$or",
)
MATCHERS = (
    "prefix",
    "suffix",
    "anything-but",
    "numeric",
    "exists",
    "cidr",
    "equals-ignore-case",
    "wildcard",
)
CHECKED = "2026-11-21"
"""The day of the runtimes' data: rules have no clock."""


@rule("RH270", "an event pattern is an object whose fields each list what they match")
def ill_formed_pattern(template: Template) -> Iterator[Problem]:
    for each in template.of_type(EVENT_RULE):
        if "EventPattern" not in each.properties:
            continue
        pattern, fault = body_of(each.properties["EventPattern"])
        if fault is not None:
            what = f"the pattern is no JSON: {fault}"
            yield Problem(
                resource=each.logical_id, path="EventPattern", what=what, way_out="write an object"
            )
        elif pattern is not None:
            for path, what, value, way_out in _pattern_faults(pattern):
                yield Problem(
                    resource=each.logical_id, path=path, what=what, value=value, way_out=way_out
                )


@rule("RH271", "a schedule is a rate or a cron expression that EventBridge reads")
def ill_formed_schedule(template: Template) -> Iterator[Problem]:
    for each in template.of_type(EVENT_RULE):
        schedule = text(each.properties.get("ScheduleExpression"))
        wrong = (
            None
            if schedule is None
            else "is a time, which no rule has"
            if schedule[:3] == "at("
            else schedule_fault(schedule)
        )
        if wrong is not None:
            allowed = "rate(5 minutes), rate(1 hour), cron(0 8 ? * MON-FRI *)"
            what = f"EventBridge does not read the schedule: it {wrong}"
            yield Problem(
                resource=each.logical_id,
                path="ScheduleExpression",
                what=what,
                value=schedule,
                allowed=allowed,
                way_out="write it so",
            )


@rule("RH272", "a function's runtime still takes new functions")
def runtime_retired(template: Template) -> Iterator[Problem]:
    for function in template.of_type("AWS::Lambda::Function"):
        runtime = text(function.properties.get("Runtime"))
        end = lambda_runtimes().get(runtime or "")
        if runtime is not None and end is not None and end <= CHECKED:
            living = [
                name for name, day in lambda_runtimes().items() if day is None or day > CHECKED
            ]
            family = [
                name
                for name in living
                if re.sub(r"[^a-z].*", "", name) == re.sub(r"[^a-z].*", "", runtime)
            ]
            what = f"Lambda takes no new function of this runtime since {end}"
            allowed = ", ".join(family) or None
            yield Problem(
                resource=function.logical_id,
                path="Runtime",
                what=what,
                value=runtime,
                allowed=allowed,
                way_out="take a newer one",
            )


@rule(
    "RH273", "a function from an archive has a runtime and a handler; one from an image has neither"
)
def function_without_runtime(template: Template) -> Iterator[Problem]:
    for function in template.of_type("AWS::Lambda::Function"):
        kind = text(function.properties.get("PackageType", "Zip"))
        there = [name for name in ("Runtime", "Handler") if name in function.properties]
        if (
            kind == "Zip"
            and len(there) < 2
            and "ImageUri" not in fields(function.properties.get("Code"))
        ):
            missing = " and ".join(name for name in ("Runtime", "Handler") if name not in there)
            what = f"the function has no {missing}"
            yield Problem(
                resource=function.logical_id,
                path=missing.split(" ", 1)[0],
                what=what,
                way_out="write both",
            )
        elif kind == "Image" and any(surely_has(function.properties, name) for name in there):
            what = f"a function from an image has no {' or '.join(there)}"
            yield Problem(
                resource=function.logical_id, path=there[0], what=what, way_out="take it out"
            )


def _pattern_faults(pattern: Any) -> Iterator[tuple[str, str, str | None, str]]:
    if not isinstance(pattern, dict) or not pattern:
        yield (
            "EventPattern",
            "the pattern is no object with fields",
            None,
            "write one, such as source: [aws.codebuild]",
        )
        return
    for key in pattern:
        if key not in TOP_FIELDS and is_known(key):
            yield (
                f"EventPattern.{key}",
                "events have no such field",
                str(key),
                did_you_mean(str(key), TOP_FIELDS, "put it under detail"),
            )
    yield from _field_faults(pattern, "EventPattern")


def _field_faults(node: Any, path: str) -> Iterator[tuple[str, str, str | None, str]]:
    for key, value in node.items():
        here = f"{path}.{key}"
        if key == "$or":
            for each in value if isinstance(value, list) else ():
                yield from _field_faults(fields(each), here)
        elif isinstance(value, dict):
            if value:
                yield from _field_faults(value, here)
            else:
                yield here, "the field matches nothing", "{}", "list what it matches"
        elif isinstance(value, list):
            if not value:
                yield here, "the field lists nothing", "[]", "list what it matches"
            for each in value:
                yield from _matcher_faults(each, here)
        elif not is_wholly_unknown(value):
            yield here, "the field is no list", str(value), f"write [{value!r}]"


def _matcher_faults(value: Any, path: str) -> Iterator[tuple[str, str, str | None, str]]:
    if isinstance(value, list):
        yield path, "a list stands in the list", str(value), "list plain values"
    elif isinstance(value, dict):
        unknown = [key for key in value if key not in MATCHERS]
        for key in unknown:
            match = nearest(str(key), MATCHERS)
            yield (
                path,
                "there is no such matcher",
                str(key),
                f"take one of {', '.join(MATCHERS)}" if match is None else f"did you mean {match}?",
            )
        if len(value) != 1 and not unknown:
            yield path, "a matcher has one kind", ", ".join(map(str, value)), "split it"
