"""Engines that a change asks for, and what locks say of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onboarding.deployment import DeployedEndpoint, Deployment, Target
from onboarding.lock import LockEntry
from onboarding.resolve import deployments
from onboarding.tree import Tree
from roundhouse.gitops.plan_document import EngineChange, EngineEvidence
from roundhouse.gitops.predictions import (
    MeasuredEngine,
    engine_predictions,
    known_engines,
)


def engine_changes(
    head: Tree, before: Iterable[DeployedEndpoint], after: Iterable[DeployedEndpoint]
) -> tuple[EngineChange, ...]:
    """Return every engine that endpoints `after` need and `before` did not, or nobody has built."""
    old_ones, new_ones = _deployments(before), _deployments(after)
    old = {target.engine_key: target for item in old_ones for target in item.built_targets}
    found: dict[str, EngineChange] = {}
    targets = [target for item in (*old_ones, *new_ones) for target in item.targets]
    measured = known_engines(head.root, targets)
    for deployment in new_ones:
        for target in _unbuilt_targets(deployment):
            if target.engine_key not in old or target.lock_entry is None:
                previous = previous_target(target, old.values())
                change = _change(head, deployment, target, previous, measured)
                found.setdefault(target.engine_key, change)
    return tuple(found[key] for key in sorted(found, key=lambda key: (found[key].model, key)))


def _deployments(endpoints: Iterable[DeployedEndpoint]) -> list[Deployment]:
    return [item for item in endpoints if isinstance(item, Deployment)]


def _unbuilt_targets(deployment: Deployment) -> Iterator[Target]:
    """Yield the engines of an endpoint, and the unbuilt models of an ensemble to be built."""
    for target in deployment.targets:
        if target.lock_entry is None:
            yield from (step for step in target.steps if step.lock_entry is None)
        yield target


def previous_target(target: Target, candidates: Any) -> Target | None:
    """Return the engine that a target takes the place of: of the same model, best the same GPU."""
    same = [
        item
        for item in candidates
        if item.model.name == target.model.name and item.engine_key != target.engine_key
    ]
    same.sort(key=lambda item: item.instance_type.gpu != target.instance_type.gpu)
    return same[0] if same else None


def evidence(target: Target | None) -> EngineEvidence | None:
    """Return what the lock says of an engine; None where there is none."""
    entry: LockEntry | None = None if target is None else target.lock_entry
    if target is None or entry is None:
        return None
    return EngineEvidence(
        key=target.engine_key,
        precision=entry.manifest.precision,
        decision=entry.manifest.decision,
        accuracy=entry.manifest.accuracy_records,
        benchmark=entry.manifest.benchmark,
        size_bytes=entry.archive.size_bytes,
        measured_capacity=target.instance_type.name in (entry.capacity or {}),
    )


def _change(
    head: Tree,
    deployment: Deployment,
    target: Target,
    previous: Target | None,
    measured: Sequence[MeasuredEngine],
) -> EngineChange:
    instance, is_missing = target.instance_type, target.lock_entry is None
    region, last = deployment.environment.region, None if previous is None else previous.lock_entry
    return EngineChange(
        model=target.model.name,
        key=target.engine_key,
        instance_type=instance.name,
        compute_capability=instance.compute_capability,
        gpu=instance.gpu,
        state="missing" if is_missing else "locked",
        built_in=_other_builder(head, deployment, target) if is_missing else None,
        before=evidence(previous),
        after=evidence(target),
        predictions=engine_predictions(head.root, region, target, last, measured),
    )


def _other_builder(head: Tree, deployment: Deployment, target: Target) -> str | None:
    """Return the environment that this one receives a missing engine from, if it deploys it."""
    source = deployment.environment.promotes_from
    if source is None or source not in head.views:
        return None
    keys = {item.engine_key for other in deployments(head, source) for item in other.targets}
    return source if target.engine_key in keys else None
