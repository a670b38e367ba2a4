"""Rules of step scaling: steps that cover the metric once, and an alarm that takes them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from template_rules.finding import Problem
from template_rules.rule import rule
from template_rules.scaling_rules import POLICY, scaled_thing
from template_rules.template import Resource, Template
from template_rules.values import is_known, labels, number, objects, text

STEPS = "StepScalingPolicyConfiguration"


@rule(
    "RH175",
    "a step scaling policy says how it adjusts, in steps that neither overlap nor leave a gap",
)
def ill_formed_steps(template: Template) -> Iterator[Problem]:
    for policy in template.of_type(POLICY):
        configuration = policy.properties.get(STEPS)
        if not isinstance(configuration, dict):
            continue
        where = partial(Problem, resource=policy.logical_id, path=f"{STEPS}.StepAdjustments")
        kind, steps = configuration.get("AdjustmentType"), configuration.get("StepAdjustments")
        if kind is None:
            what = "the policy says not how it adjusts"
            way_out = "write ChangeInCapacity, PercentChangeInCapacity or ExactCapacity"
            yield Problem(
                resource=policy.logical_id,
                path=f"{STEPS}.AdjustmentType",
                what=what,
                way_out=way_out,
            )
        if "MinAdjustmentMagnitude" in configuration and text(kind) not in (
            None,
            "PercentChangeInCapacity",
        ):
            what, path = (
                f"{kind} reads no MinAdjustmentMagnitude",
                f"{STEPS}.MinAdjustmentMagnitude",
            )
            yield Problem(
                resource=policy.logical_id,
                path=path,
                what=what,
                way_out="take it out, or adjust by percent",
            )
        if steps is None or steps == []:
            yield where(what="the policy has no step", way_out="write one with ScalingAdjustment")
            continue
        if isinstance(steps, list) and all(isinstance(each, dict) for each in steps):
            for what, value in _step_faults(steps):
                yield where(
                    what=what, value=value, way_out="let each step begin where another ends"
                )


@rule("RH176", "an alarm takes the steps of a step scaling policy", "warning")
def steps_without_alarm(template: Template) -> Iterator[Problem]:
    actions = [
        action
        for alarm in template.of_type("AWS::CloudWatch::Alarm")
        for name in ("AlarmActions", "OKActions", "InsufficientDataActions")
        for action in _list(alarm.properties.get(name))
    ]
    meant = [label for action in actions for label in (*labels(action), str(action))]
    exported = {each.target for each in template.references if each.resource is None}
    for policy in template.of_type(POLICY):
        if text(policy.properties.get("PolicyType")) == "StepScaling":
            name = policy.logical_id
            if name not in exported and not any(re.search(rf"\b{name}\b", each) for each in meant):
                what = "no alarm of this template takes the steps, so that nothing is ever scaled by them"
                yield Problem(
                    resource=name,
                    what=what,
                    way_out=f"write AlarmActions: [!Ref {name}] in an alarm",
                )


@rule(
    "RH178",
    "policies of one scaled thing have names of their own: one of a name takes the other's place",
)
def policies_of_one_name(template: Template) -> Iterator[Problem]:
    first: dict[tuple[object, ...], Resource] = {}
    for policy in template.of_type(POLICY):
        name = text(policy.properties.get("PolicyName"))
        target = policy.properties.get("ScalingTargetId")
        scaled = (target,) if target is not None else scaled_thing(policy)
        if (
            name is None
            or "Condition" in policy.raw
            or not all(isinstance(part, str) for part in scaled)
        ):
            continue
        before = first.setdefault((name, *scaled), policy)
        if before is not policy:
            what = f"{before.logical_id} has the same name, and scales the same"
            yield Problem(
                resource=policy.logical_id,
                path="PolicyName",
                what=what,
                value=name,
                way_out="rename one",
            )


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _step_faults(steps: list[dict[str, object]]) -> Iterator[tuple[str, str | None]]:
    intervals = []
    for _, step in objects(steps):
        bounds = [step.get(f"MetricInterval{end}Bound") for end in ("Lower", "Upper")]
        if any(
            each is not None and (not is_known(each) or number(each) is None) for each in bounds
        ):
            return
        low, high = (number(each) for each in bounds)
        intervals.append((-math.inf if low is None else low, math.inf if high is None else high))
    for low, high in intervals:
        if low >= high:
            yield "a step ends where it begins, or before", f"{low:g} to {high:g}"
            return
    intervals.sort()
    for (_, end), (start, _) in pairwise(intervals):
        if start != end:
            what = "two steps overlap" if start < end else "there is a gap between two steps"
            yield what, f"{start:g} to {end:g}" if start < end else f"{end:g} to {start:g}"
