"""Rules of scaling policies: their configuration, their metric, its statistic and target."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from onboarding.nearest import did_you_mean
from template_rules.hosting import INSTANCE_COUNT, POLICY, Variant, instance_facts, variant_named
from template_rules.metrics import CUSTOMIZED, PERCENT, SECONDS, metric_uses
from template_rules.rule import template_rule
from template_rules.templates import Assembly, Problem, Resource
from template_rules.values import at, is_unknown, known_text, number, objects

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


@template_rule("E9164", "Scaling policy whose configuration does not fit")
def policy_configuration(assembly: Assembly) -> Iterator[Problem]:
    """A policy has the configuration of its type, with one metric of what it scales."""
    needed = {"TargetTrackingScaling": TRACKING, "StepScaling": STEPS}
    seen: set[tuple[str, str]] = set()
    for policy in assembly.of_type(POLICY):
        name = known_text(policy.properties.get("PolicyName"))
        pair = (str(name), str(policy.properties.get("ResourceId")))
        if name is not None and pair in seen:
            what = "two policies of a variant have one name, and one replaces the other"
            yield policy.problem("PolicyName", what, "rename one", value=name)
        seen.add(pair)
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
    derived = re.findall(
        r"= ([\d.,]*\d) ", str(at(policy.raw, "Metadata", "Derivation", "TargetValue"))
    )
    if derived and target is not None and number(derived[-1].replace(",", "")) != target:
        path = f"{TRACKING}.TargetValue"
        what = "the derivation beside the policy gives another target"
        yield policy.problem(path, what, "write that", value=f"{target:g}", allowed=derived[-1])
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
            allowed=allowed_metrics,
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
