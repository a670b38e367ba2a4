"""What a template, or its files alone, say of an endpoint: counts, types, cost and rollout."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import Deployment
from onboarding.prices import HOURS_A_MONTH, price
from roundhouse.gitops.plan_document import MonthlyCost, RolloutPlan
from roundhouse.gitops.template_changes import Template
from stacks.rollout import initial_count
from stacks.scaling import TARGET_ID, named_id, scaled_counts

CONFIG, ENDPOINT = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Endpoint"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
PERCENT = 100.0


@dataclass(frozen=True, kw_only=True)
class VariantFacts:
    """One variant: its instance types, and between which counts it runs."""

    name: str
    instance_types: tuple[str, ...]
    least: int
    most: int


def variant_facts(template: Template) -> tuple[VariantFacts, ...]:
    """Return every variant of an endpoint's template, shadows too."""
    targets = {variant_name(item): item["Properties"] for item in resources_of(template, TARGET)}
    return tuple(
        _facts(variant, targets.get(variant["VariantName"]))
        for config in resources_of(template, CONFIG)
        for key in ("ProductionVariants", "ShadowProductionVariants")
        for variant in config["Properties"].get(key, ())
    )


def declared_variants(deployment: Deployment) -> tuple[VariantFacts, ...]:
    """Return the variants that the files declare, whatever engines are built."""
    counts = {count.id: count for count in scaled_counts(deployment)}
    found = []
    for variant in deployment.variants:
        count = counts.get(named_id(variant.name, TARGET_ID))
        first = initial_count(variant)
        bounds = [(first, first)]
        if count is not None:
            scheduled = ((row.least, row.most) for row in count.schedule)
            bounds = [(count.least, count.most), *scheduled]
        found.append(
            VariantFacts(
                name=variant.name,
                instance_types=tuple(pool.instance_type.name for pool in variant.pools),
                least=min(least for least, _ in bounds),
                most=max(most for _, most in bounds),
            )
        )
    return tuple(found)


def monthly_cost(
    variants: Sequence[VariantFacts], region: str
) -> tuple[MonthlyCost, tuple[str, ...]]:
    """Return USD a month of an endpoint's instances, and the types without a known price.

    Of several instance types the cheapest counts at the least, the dearest at the most.
    """
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


def variant_name(item: Mapping[str, Any]) -> str:
    """Return the variant that a scalable target or scaling policy is of."""
    return str(item["Properties"]["ResourceId"]).rsplit("/", 1)[-1]


def resources_of(template: Template, kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the resources of one type."""
    return (item for item in template.get("Resources", {}).values() if item["Type"] == kind)
