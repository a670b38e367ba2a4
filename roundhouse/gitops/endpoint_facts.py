"""What a template says of its endpoint: counts, scaling targets, rollout and instance types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import Deployment
from onboarding.metrics import ScaledCount
from onboarding.prices import HOURS_A_MONTH, price
from roundhouse.gitops.plan_document import MonthlyCost, RolloutPlan, ScalingChange
from roundhouse.gitops.template_changes import Template
from stacks.rollout import initial_count
from stacks.scaling.counts import scaled_counts

CONFIG, ENDPOINT = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Endpoint"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
PERCENT = 100.0


@dataclass(frozen=True, kw_only=True)
class VariantFacts:
    """One variant: its instance types, and between which counts it runs."""

    name: str
    instance_types: tuple[str, ...]
    least: int
    most: int


@dataclass(frozen=True, kw_only=True)
class ScaledValue:
    """A number that scaling holds a variant to, with its derivation."""

    value: float
    derivation: str | None


def variant_facts(template: Template) -> tuple[VariantFacts, ...]:
    """Return every variant of an endpoint's template, shadows too."""
    targets = {variant_name(item): item["Properties"] for item in resources_of(template, TARGET)}
    return tuple(
        _facts(variant, targets.get(variant["VariantName"]))
        for config in resources_of(template, CONFIG)
        for key in ("ProductionVariants", "ShadowProductionVariants")
        for variant in config["Properties"].get(key, ())
    )


def declared_template(deployment: Deployment) -> Template:
    """Return the counts and bounds that the files declare, whatever engines are built.

    It holds what `variant_facts`, `monthly_cost` and `scaling_changes` read, and no more.
    """
    variants: dict[str, list[dict[str, Any]]] = {
        "ProductionVariants": [],
        "ShadowProductionVariants": [],
    }
    for variant in deployment.variants:
        kind = "ShadowProductionVariants" if variant.role == "shadow" else "ProductionVariants"
        variants[kind].append(
            {
                "VariantName": variant.name,
                "InstancePools": [{"InstanceType": p.instance_type.name} for p in variant.pools],
                "InitialInstanceCount": initial_count(variant),
            }
        )
    return {
        "Resources": {
            "EndpointConfig": {"Type": CONFIG, "Properties": variants},
            **{count.id: _declared_target(count) for count in scaled_counts(deployment)},
        }
    }


def _declared_target(count: ScaledCount) -> dict[str, Any]:
    actions = [
        {
            "Schedule": bounds.schedule,
            "Timezone": bounds.timezone,
            "ScalableTargetAction": {"MinCapacity": bounds.least, "MaxCapacity": bounds.most},
        }
        for bounds in count.schedule
    ]
    bounds = {"MinCapacity": count.least, "MaxCapacity": count.most}
    properties = {"ResourceId": count.resource_id, **bounds, "ScheduledActions": actions}
    return {"Type": TARGET, "Properties": properties}


def monthly_cost(template: Template, region: str) -> tuple[MonthlyCost, tuple[str, ...]]:
    """Return USD a month of an endpoint's instances, and the types without a known price.

    Of several instance types the cheapest counts at the least, the dearest at the most.
    """
    variants = variant_facts(template)
    types = sorted({name for variant in variants for name in variant.instance_types})
    prices = {name: price(region, "hosting", name) for name in types}
    unknown = tuple(name for name, value in prices.items() if value is None)
    if unknown:
        return MonthlyCost(least=None, most=None), unknown
    known = {name: value for name, value in prices.items() if value is not None}

    def month(hourly: float) -> float:
        return round(hourly * HOURS_A_MONTH, 2)

    cheapest = {item.name: min(known[name] for name in item.instance_types) for item in variants}
    dearest = {item.name: max(known[name] for name in item.instance_types) for item in variants}
    return MonthlyCost(
        least=month(sum(cheapest[item.name] * item.least for item in variants)),
        most=month(sum(dearest[item.name] * item.most for item in variants)),
    ), ()


def scaling_changes(before: Template | None, after: Template | None) -> tuple[ScalingChange, ...]:
    """Return the targets and bounds that a change moves."""
    old, new = (dict(_scaled_values(template or {})) for template in (before, after))
    absent = ScaledValue(value=math.nan, derivation=None)
    return tuple(
        ScalingChange(
            variant=variant,
            what=what,
            before=_number(old.get((variant, what), absent)),
            after=_number(new.get((variant, what), absent)),
            derivation=new.get((variant, what), absent).derivation,
        )
        for variant, what in sorted(old.keys() | new.keys())
        if _number(old.get((variant, what), absent)) != _number(new.get((variant, what), absent))
    )


def rollout_plan(template: Template, updates: int) -> RolloutPlan | None:
    """Return how SageMaker takes another endpoint config; None where there is no endpoint."""
    endpoints = list(resources_of(template, ENDPOINT))
    if not endpoints:
        return None
    config = endpoints[0]["Properties"].get("DeploymentConfig", {})
    fleet = sum(variant.least for variant in variant_facts(template))
    if "RollingUpdatePolicy" in config:
        policy = config["RollingUpdatePolicy"]
        percent = float(policy["MaximumBatchSize"]["Value"])
        count = math.ceil(PERCENT / percent)
        return RolloutPlan(
            kind="rolling",
            step_percents=_steps(percent, count),
            minutes=count * policy["WaitIntervalInSeconds"] / 60,
            extra_instances=math.ceil(fleet * percent / PERCENT),
            updates=updates,
        )
    policy = config.get("BlueGreenUpdatePolicy", {})
    routing = policy.get("TrafficRoutingConfiguration", {"Type": "ALL_AT_ONCE"})
    step = routing.get("CanarySize", routing.get("LinearStepSize", {"Value": PERCENT}))
    percent = float(step["Value"])
    is_canary = routing["Type"] == "CANARY"
    steps = (percent, PERCENT) if is_canary else _steps(percent, math.ceil(PERCENT / percent))
    waits = len(steps) - 1
    seconds = waits * routing.get("WaitIntervalInSeconds", 0)
    return RolloutPlan(
        kind=routing["Type"].lower().replace("_", "-"),
        step_percents=steps,
        minutes=(seconds + policy.get("TerminationWaitInSeconds", 0)) / 60,
        extra_instances=fleet,
        updates=updates,
    )


def _steps(percent: float, count: int) -> tuple[float, ...]:
    return tuple(min(PERCENT, percent * number) for number in range(1, count + 1))


def _facts(variant: Mapping[str, Any], target: Mapping[str, Any] | None) -> VariantFacts:
    pools = variant.get("InstancePools", [{"InstanceType": variant.get("InstanceType")}])
    first = int(variant.get("InitialInstanceCount", 0))
    if "ManagedInstanceScaling" in variant:
        managed = variant["ManagedInstanceScaling"]
        return VariantFacts(
            name=variant["VariantName"],
            instance_types=tuple(pool["InstanceType"] for pool in pools),
            least=int(managed["MinInstanceCount"]),
            most=int(managed["MaxInstanceCount"]),
        )
    bounds = [] if target is None else [target, *_scheduled(target)]
    floors = [int(bound["MinCapacity"]) for bound in bounds if "MinCapacity" in bound] or [first]
    ceilings = [int(bound["MaxCapacity"]) for bound in bounds if "MaxCapacity" in bound] or [first]
    return VariantFacts(
        name=variant["VariantName"],
        instance_types=tuple(pool["InstanceType"] for pool in pools),
        least=min(floors),
        most=max(ceilings),
    )


def _scheduled(target: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for action in target.get("ScheduledActions", ()):
        yield action["ScalableTargetAction"]


def _scaled_values(template: Template) -> Iterator[tuple[tuple[str, str], ScaledValue]]:
    for item in resources_of(template, TARGET):
        for key, what in (("MinCapacity", "fewest instances"), ("MaxCapacity", "most instances")):
            yield (
                (variant_name(item), what),
                ScaledValue(value=float(item["Properties"][key]), derivation=None),
            )
    for item in resources_of(template, POLICY):
        tracking = item["Properties"].get("TargetTrackingScalingPolicyConfiguration")
        if tracking is not None:
            note = item.get("Metadata", {}).get("Derivation", {}).get("TargetValue")
            yield (
                (variant_name(item), f"target of {_metric(tracking)}"),
                ScaledValue(value=float(tracking["TargetValue"]), derivation=note),
            )


def _metric(tracking: Mapping[str, Any]) -> str:
    if "PredefinedMetricSpecification" in tracking:
        return str(tracking["PredefinedMetricSpecification"]["PredefinedMetricType"])
    custom = tracking["CustomizedMetricSpecification"]
    return str(custom.get("MetricName", "metric math"))


def _number(scaled: ScaledValue) -> float | None:
    return None if math.isnan(scaled.value) else scaled.value


def variant_name(item: Mapping[str, Any]) -> str:
    """Return the variant that a scalable target or scaling policy is of."""
    return str(item["Properties"]["ResourceId"]).rsplit("/", 1)[-1]


def resources_of(template: Template, kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the resources of one type."""
    return (item for item in template.get("Resources", {}).values() if item["Type"] == kind)
