"""Rules of Application Auto Scaling: targets, bounds, schedules, policies and their metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from onboarding.nearest import did_you_mean
from onboarding.schedule import EXAMPLES, nearest_time_zone, schedule_fault, time_zones
from template_rules.hosting import (
    ENDPOINT,
    INSTANCE_COUNT,
    POLICY,
    TARGET,
    VARIANT_ID,
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
from template_rules.rule import TemplateRule
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import (
    at,
    fields,
    is_known,
    is_unknown,
    known_text,
    number,
    objects,
)

TRACKING = "TargetTrackingScalingPolicyConfiguration"
STEPS = "StepScalingPolicyConfiguration"
METRIC_KINDS = ("PredefinedMetricSpecification", "CustomizedMetricSpecification")
COMPONENT = "sagemaker:inference-component:DesiredCopyCount"
PREDEFINED = {
    INSTANCE_COUNT: (
        "SageMakerVariantInvocationsPerInstance",
        "SageMakerVariantConcurrentRequestsPerModelHighResolution",
    ),
    "sagemaker:variant:DesiredProvisionedConcurrency": (
        "SageMakerVariantProvisionedConcurrencyUtilization",
    ),
    COMPONENT: (
        "SageMakerInferenceComponentInvocationsPerCopy",
        "SageMakerInferenceComponentConcurrentRequestsPerCopyHighResolution",
    ),
}
"""Predefined metrics of each scalable dimension. Source: Application Auto Scaling API."""


class ResourceId(TemplateRule):
    """A ResourceId has the form of its scalable dimension, and names a variant that exists."""

    id = "E9161"
    shortdesc = "ResourceId that names no variant"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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
                allowed=", ".join(map(str, names)),
            )


class PolicyTarget(TemplateRule):
    """A policy scales a variant that a scalable target registers."""

    id = "E9163"
    shortdesc = "Scaling policy without a scalable target"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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


class CapacityBounds(TemplateRule):
    """A minimum is at most its maximum, and 0 only where SageMaker scales to zero."""

    id = "E9160"
    shortdesc = "MinCapacity above MaxCapacity, or 0 for a real-time endpoint"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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


class FirstCount(TemplateRule):
    """The first instance count lies between the bounds of scaling."""

    id = "E9171"
    shortdesc = "InitialInstanceCount outside MinCapacity and MaxCapacity"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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


class ScheduledActions(TemplateRule):
    """A scheduled action has a name of its own, a schedule, a time zone and a bound."""

    id = "E9172"
    shortdesc = "Scheduled action that Application Auto Scaling refuses or replaces"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
        for target in assembly.of_type(TARGET):
            actions = list(objects(target.properties.get("ScheduledActions")))
            names = Counter(known_text(action.get("ScheduledActionName")) for _, action in actions)
            for index, action in actions:
                path = f"ScheduledActions[{index}]"
                name = known_text(action.get("ScheduledActionName"))
                if name is not None and names[name] > 1:
                    what = (
                        "two scheduled actions have one name, and the last one replaces the other"
                    )
                    place = f"{path}.ScheduledActionName"
                    yield target.problem(place, what, "rename one", value=name)
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


class PolicyConfiguration(TemplateRule):
    """A policy has the configuration of its type, with one metric of what it scales."""

    id = "E9164"
    shortdesc = "Scaling policy whose configuration does not fit"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
        needed = {"TargetTrackingScaling": TRACKING, "StepScaling": STEPS}
        for policy in assembly.of_type(POLICY):
            kind = known_text(policy.properties.get("PolicyType"))
            given = [name for name in needed.values() if name in policy.properties]
            if kind in needed and given != [needed[kind]]:
                what, value = f"a {kind} policy has {needed[kind]} only", " and ".join(given)
                yield policy.problem(needed[kind], what, "write that", value=value or "nothing")
            tracking = policy.properties.get(TRACKING)
            if isinstance(tracking, dict):
                yield from _tracking_problems(policy, tracking)
            steps = policy.properties.get(STEPS)
            if isinstance(steps, dict):
                yield from _step_problems(policy, steps)


def _tracking_problems(policy: Resource, tracking: dict[str, Any]) -> Iterator[Problem]:
    kinds = [kind for kind in METRIC_KINDS if kind in tracking]
    if len(kinds) != 1 and not any(is_unknown(tracking[kind]) for kind in kinds):
        what, value = "target tracking follows one metric", " and ".join(kinds) or "none"
        allowed = f"one of {', '.join(METRIC_KINDS)}"
        yield policy.problem(TRACKING, what, "keep one", value=value, allowed=allowed)
    target = number(tracking.get("TargetValue"))
    if target is not None and target <= 0:
        path = f"{TRACKING}.TargetValue"
        yield policy.problem(path, "the target is not above zero", "raise it", value=f"{target:g}")
    for name in ("ScaleInCooldown", "ScaleOutCooldown"):
        seconds = number(tracking.get(name))
        if seconds is not None and seconds < 0:
            what = "the cooldown is negative"
            yield policy.problem(f"{TRACKING}.{name}", what, "write 0 or more", value=seconds)
    metric = known_text(at(tracking, METRIC_KINDS[0], "PredefinedMetricType"))
    dimension = known_text(policy.properties.get("ScalableDimension"))
    allowed_metrics = PREDEFINED.get(dimension or "", ())
    if metric is not None and dimension in PREDEFINED and metric not in allowed_metrics:
        yield policy.problem(
            f"{TRACKING}.{METRIC_KINDS[0]}.PredefinedMetricType",
            f"{dimension} has no such metric",
            did_you_mean(metric, allowed_metrics, "take one of these"),
            value=metric,
            allowed=", ".join(allowed_metrics),
        )


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


class PolicyStatistic(TemplateRule):
    """A policy follows a statistic that does not grow with the number of instances."""

    id = "E9168"
    shortdesc = "Scaling policy by a statistic that grows with the instances"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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


class UtilizationTarget(TemplateRule):
    """A target of utilization is a percentage of all GPUs of an instance, as the metric is."""

    id = "E9167"
    shortdesc = "Target of utilization out of the metric's range"

    def problems(self, assembly: Assembly) -> Iterator[Problem]:
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
    elif value > 100 and not metric.startswith(("CPU", "GPU")):
        return f"{metric} never passes 100 %", "write a percentage"
    return None
