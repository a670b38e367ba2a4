"""Rules of Application Auto Scaling: targets, bounds, schedules, policies and their metrics."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from onboarding.schedule import EXAMPLES, nearest_time_zone, schedule_fault, time_zones
from template_rules.hosting import (
    ENDPOINT,
    INSTANCE_COUNT,
    POLICY,
    TARGET,
    Variant,
    all_variants,
    config_of,
    instance_facts,
    scaled_endpoint,
    scaled_variant,
    variant_named,
    variants,
)
from template_rules.metrics import CUSTOMIZED, PERCENT, SECONDS, metric_uses
from template_rules.rule import resource_rule, template_rule
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, fields, is_known, is_unknown, known_text, number, objects

TRACKING = "TargetTrackingScalingPolicyConfiguration"
STEPS = "StepScalingPolicyConfiguration"


@template_rule("E9161", "ResourceId that names no variant")
def resource_id(assembly: Assembly) -> Iterator[Problem]:
    """A ResourceId of a variant names a production variant that exists."""
    for resource in assembly.of_type(TARGET, POLICY):
        match = scaled_variant(resource)
        if match is None:
            continue
        found = variants(config_of(assembly, assembly.find(match["endpoint"], ENDPOINT)))
        names = [variant.name for variant in found if not variant.shadow]
        if match["variant"] not in names and all(map(is_known, (*names, match["variant"]))):
            what, value = "the endpoint has no such production variant", match.group()
            yield resource.problem("ResourceId", what, value=value, allowed=names)


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


@template_rule("E9164", "Scaling policy whose configuration does not fit")
def policy_configuration(assembly: Assembly) -> Iterator[Problem]:
    """A policy has a name of its own, the target that was derived, and steps without a gap."""
    seen: set[tuple[str, str]] = set()
    for policy in assembly.of_type(POLICY):
        name = known_text(policy.properties.get("PolicyName"))
        pair = (str(name), str(policy.properties.get("ResourceId")))
        if name is not None and pair in seen:
            what = "two policies of a variant have one name, and one replaces the other"
            yield policy.problem("PolicyName", what, "rename one", value=name)
        seen.add(pair)
        target = number(policy.at(f"{TRACKING}.TargetValue"))
        derivation = str(at(policy.raw, "Metadata", "Derivation", "TargetValue"))
        derived = re.findall(r"= ([\d.,]*\d) ", derivation)
        if derived and target is not None and number(derived[-1].replace(",", "")) != target:
            path, what = f"{TRACKING}.TargetValue", "the derivation beside it gives another target"
            yield policy.problem(path, what, "write that", value=target, allowed=derived[-1])
        steps = policy.properties.get(STEPS)
        if isinstance(steps, dict):
            yield from _step_problems(policy, steps)


def _step_problems(policy: Resource, configuration: dict[str, Any]) -> Iterator[Problem]:
    path = f"{STEPS}.StepAdjustments"
    if "AdjustmentType" not in configuration:
        way_out = "write ChangeInCapacity, PercentChangeInCapacity or ExactCapacity"
        yield policy.problem(STEPS, "the policy has no AdjustmentType", way_out)
    steps = [step for _, step in objects(configuration.get("StepAdjustments"))]
    if not steps and not is_unknown(configuration.get("StepAdjustments")):
        yield policy.problem(path, "the policy has no step", "write one")
    ends = sorted(
        (
            number(step.get("MetricIntervalLowerBound", "-1e308")) or 0.0,
            number(step.get("MetricIntervalUpperBound", "1e308")) or 0.0,
        )
        for step in steps
    )
    for (_, upper), (lower, _) in pairwise(ends):
        if upper != lower:
            what, value = "steps overlap or leave a gap", f"{upper:g} and {lower:g}"
            yield policy.problem(path, what, "let each begin where the other ends", value=value)


@template_rule("E9168", "Scaling policy by a statistic that grows with the instances")
def policy_statistic(assembly: Assembly) -> Iterator[Problem]:
    """A policy follows a statistic that does not grow with the number of instances."""
    for use in metric_uses(assembly):
        if use.resource.type != POLICY or use.statistic not in ("Sum", "SampleCount"):
            continue
        per_instance = use.metric is not None and use.metric.startswith("InvocationsPer")
        if use.is_utilization or use.quantity in (PERCENT, SECONDS) or not per_instance:
            yield use.resource.problem(
                f"{CUSTOMIZED}.Statistic",
                f"{use.statistic} of {use.metric} grows with every instance and data point",
                "take Average",
                value=use.statistic,
                allowed="Average or Maximum; Sum for InvocationsPerInstance",
            )


@template_rule("E9167", "Target of utilization out of the metric's range")
def utilization_target(assembly: Assembly) -> Iterator[Problem]:
    """A target is a percentage of all GPUs or vCPUs of an instance, as the metric is."""
    for use in metric_uses(assembly):
        target = number(at(use.resource.properties, TRACKING, "TargetValue"))
        if use.resource.type != POLICY or not use.is_utilization or target is None:
            continue
        given = use.dimensions or {}
        variant = variant_named(assembly, given.get("EndpointName"), given.get("VariantName"))
        fault = utilization_fault(variant, target, str(use.metric))
        if fault is not None:
            path = f"{TRACKING}.TargetValue"
            yield use.resource.problem(path, fault[0], fault[1], value=f"{target:g}")


def utilization_fault(variant: Variant | None, value: float, metric: str) -> tuple[str, str] | None:
    """Return what is wrong with a utilization of a variant, and the way out; None when it fits."""
    if value <= 1:
        return f"{metric} is in percent, and this is a share", f"write {value * 100:g}"
    known = [] if variant is None else [instance_facts(name) for name in variant.instance_types]
    counts = [facts.gpu_count for facts in known if facts is not None]
    if metric.startswith("GPU") and counts and len(counts) == len(known):
        gpus = min(counts)
        if gpus == 0:
            return f"the instance type has no GPU, and no {metric}", "take a CPU metric"
        if value > 100 * gpus:
            return f"{metric} never comes so far", f"write a percentage x {gpus} GPUs"
        if gpus > 1 and value <= 100:
            what = f"{metric} counts 100 for each of the {gpus} GPUs, so that this is "
            return f"{what}{value / gpus:g} %", f"write {value * gpus:g}"
    elif metric == "CPUUtilization":
        vcpus = [facts.vcpus for facts in known if facts is not None and facts.vcpus is not None]
        if vcpus and len(vcpus) == len(known) and value > 100 * min(vcpus):
            return f"{metric} never comes so far", f"write a percentage x {min(vcpus)} vCPUs"
    elif value > 100 and not metric.startswith(("CPU", "GPU")):
        return f"{metric} never passes 100 %", "write a percentage"
    return None
