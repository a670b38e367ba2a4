"""What a template, or its files alone, say of an endpoint: counts, types, cost and rollout."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.deployment import Deployment
from onboarding.prices import HOURS_A_MONTH, price
from roundhouse.deploy.stacks import Template
from roundhouse.gitops.plan_document import MonthlyCost, RolloutPlan
from stacks.rollout import initial_count
from stacks.scaling import TARGET_ID, named_id, scaled_counts

CONFIG, ENDPOINT = "AWS::SageMaker::EndpointConfig", "AWS::SageMaker::Endpoint"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
PERCENT = 100.0
Bounds = tuple[int, int]
"""Fewest and most of something that is scaled."""


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
        count, first = counts.get(named_id(variant.name, TARGET_ID)), initial_count(variant)
        bounds = [(first, first)]
        if count is not None:
            scheduled = ((row.least, row.most) for row in count.schedule)
            bounds = [(count.least, count.most), *scheduled]
        types = (pool.instance_type.name for pool in variant.pools)
        found.append(_variant_facts(variant.name, types, bounds))
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
        found = rolling_plan(config, "rolling")
        extra = math.ceil(fleet * found.step_percents[0] / PERCENT)
        return found.model_copy(update={"extra_instances": extra, "updates": updates})
    policy = config.get("BlueGreenUpdatePolicy", {})
    routing = policy.get("TrafficRoutingConfiguration", {"Type": "ALL_AT_ONCE"})
    step = routing.get("CanarySize", routing.get("LinearStepSize", {"Value": PERCENT}))
    percent = float(step["Value"])
    is_canary = routing["Type"] == "CANARY"
    steps = (percent, PERCENT) if is_canary else _steps(percent)
    waits = len(steps) - 1
    seconds = waits * routing.get("WaitIntervalInSeconds", 0)
    return RolloutPlan(
        kind=routing["Type"].lower().replace("_", "-"),
        step_percents=steps,
        minutes=(seconds + policy.get("TerminationWaitInSeconds", 0)) / 60,
        extra_instances=fleet,
        updates=updates,
    )


def rolling_plan(config: Mapping[str, Any], kind: str) -> RolloutPlan:
    """Return the batches of a deployment config that rolls, with one instance more meanwhile."""
    policy = config["RollingUpdatePolicy"]
    steps = _steps(float(policy["MaximumBatchSize"]["Value"]))
    minutes = len(steps) * policy["WaitIntervalInSeconds"] / 60
    return RolloutPlan(kind=kind, step_percents=steps, minutes=minutes, extra_instances=1)


def _steps(percent: float) -> tuple[float, ...]:
    count = math.ceil(PERCENT / percent)
    return tuple(min(PERCENT, percent * number) for number in range(1, count + 1))


def _facts(variant: Mapping[str, Any], target: Mapping[str, Any] | None) -> VariantFacts:
    pools = variant.get("InstancePools", [{"InstanceType": variant.get("InstanceType")}])
    first, bounds = int(variant.get("InitialInstanceCount", 0)), managed_bounds(variant)
    if not bounds:
        bounds = [(first, first)] if target is None else count_bounds(target)
    types = (pool["InstanceType"] for pool in pools)
    return _variant_facts(variant["VariantName"], types, bounds)


def _variant_facts(name: str, types: Iterable[str], bounds: Sequence[Bounds]) -> VariantFacts:
    least, most = min(low for low, _ in bounds), max(high for _, high in bounds)
    return VariantFacts(name=name, instance_types=tuple(types), least=least, most=most)


def managed_bounds(variant: Mapping[str, Any]) -> list[Bounds]:
    """Return the (fewest, most) instances that SageMaker itself scales a variant by, if it does."""
    managed = variant.get("ManagedInstanceScaling")
    if managed is None:
        return []
    return [(int(managed["MinInstanceCount"]), int(managed["MaxInstanceCount"]))]


def count_bounds(target: Mapping[str, Any]) -> list[Bounds]:
    """Return every (fewest, most) that a scalable target or one of its schedules sets."""
    first = {key: target[key] for key in ("MinCapacity", "MaxCapacity")}
    actions = [item["ScalableTargetAction"] for item in target.get("ScheduledActions", ())]
    rows = [{**first, **action} for action in ({}, *actions)]
    return [(int(row["MinCapacity"]), int(row["MaxCapacity"])) for row in rows]


def variant_name(item: Mapping[str, Any]) -> str:
    """Return the variant that a scalable target or scaling policy is of."""
    return str(item["Properties"]["ResourceId"]).rsplit("/", 1)[-1]


def resources_of(template: Template, kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the resources of one type."""
    return (item for item in template.get("Resources", {}).values() if item["Type"] == kind)
