"""Scaling as deployed: bounds, policies, schedules, and what is suspended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from roundhouse.aws.clients import Client, calling
from roundhouse.gitops.drift.difference import Differ, Difference, plain
from roundhouse.gitops.endpoint_facts import POLICY, TARGET, resources_of
from roundhouse.gitops.template_changes import Template

NAMESPACE = "sagemaker"


def scaling_drift(scaling: Client, template: Template, differ: Differ) -> Iterator[Difference]:
    """Yield what differs of the scaling of an endpoint's variants."""
    targets = [item["Properties"] for item in resources_of(template, TARGET)]
    for target in targets:
        yield from _scalable_target(scaling, target, differ)
    policies = [item["Properties"] for item in resources_of(template, POLICY)]
    for resource in sorted({target["ResourceId"] for target in targets}):
        own = [policy for policy in policies if policy["ResourceId"] == resource]
        yield from _policies(scaling, resource, own, differ)


def _scalable_target(
    scaling: Client, target: Mapping[str, Any], differ: Differ
) -> Iterator[Difference]:
    resource = target["ResourceId"]
    variant = variant_of(resource)
    selected = {
        "ServiceNamespace": NAMESPACE,
        "ScalableDimension": target["ScalableDimension"],
    }
    with calling(f"Scaling of {resource}"):
        found = scaling.describe_scalable_targets(ResourceIds=[resource], **selected)
        actions = scaling.describe_scheduled_actions(ResourceId=resource, **selected)
    targets = found["ScalableTargets"]
    if not targets:
        yield from differ(f"scaling of {variant}", resource, None)
        return
    live = (targets[0]["MinCapacity"], targets[0]["MaxCapacity"])
    if live not in count_bounds(target):
        first = (target["MinCapacity"], target["MaxCapacity"])
        yield from differ(f"bounds of {variant}", list(first), list(live))
    suspended = [key for key, value in targets[0].get("SuspendedState", {}).items() if value]
    yield from differ(f"suspended scaling of {variant}", [], suspended)
    wanted = {
        item["ScheduledActionName"]: _action(item) for item in target.get("ScheduledActions", ())
    }
    there = {item["ScheduledActionName"]: _action(item) for item in actions["ScheduledActions"]}
    for name in sorted(wanted.keys() | there.keys()):
        yield from differ(f"schedule {name} of {variant}", wanted.get(name), there.get(name))


def _policies(
    scaling: Client, resource: str, wanted: Sequence[Mapping[str, Any]], differ: Differ
) -> Iterator[Difference]:
    kinds = ("TargetTrackingScalingPolicyConfiguration", "StepScalingPolicyConfiguration")
    with calling(f"Scaling policies of {resource}"):
        found = scaling.describe_scaling_policies(ServiceNamespace=NAMESPACE, ResourceId=resource)
    live = {item["PolicyName"]: item for item in found["ScalingPolicies"]}
    deployed = {item["PolicyName"]: item for item in wanted}
    for name in sorted(live.keys() | deployed.keys()):
        sides = [
            None if side is None else {kind: plain(side[kind]) for kind in kinds if kind in side}
            for side in (deployed.get(name), live.get(name))
        ]
        yield from differ(f"scaling policy {name}", *sides)


def count_bounds(target: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return every (fewest, most) that the target or one of its schedules sets."""
    first = (int(target["MinCapacity"]), int(target["MaxCapacity"]))
    actions = [item["ScalableTargetAction"] for item in target.get("ScheduledActions", ())]
    scheduled = [
        (int(item.get("MinCapacity", first[0])), int(item.get("MaxCapacity", first[1])))
        for item in actions
    ]
    return [first, *scheduled]


def _action(item: Mapping[str, Any]) -> dict[str, Any]:
    kept = ("Schedule", "Timezone", "ScalableTargetAction")
    return {key: plain(item[key]) for key in kept if item.get(key) is not None}


def variant_of(resource: str) -> str:
    return resource.rsplit("/", 1)[-1]
