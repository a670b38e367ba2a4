"""Engines that a change asks for: what builds take, and what locks say."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.plan_source import PlanSource, locked_plans, plan_keys, plan_sources
from onboarding.platform import PACKAGING_ROUTE
from onboarding.resolve import deployments
from onboarding.signature import parse_public_key
from onboarding.tree import Tree
from roundhouse.deploy.builds.requests import compile_route
from roundhouse.gitops.build_estimates import build_estimate
from roundhouse.gitops.plan_document import EngineChange, EngineEvidence
from roundhouse.gitops.predictions import (
    MeasuredEngine,
    engine_predictions,
    locked_engines,
    measured_engines,
)


def engine_changes(
    head: Tree, before: Mapping[str, Deployment], after: Mapping[str, Deployment]
) -> tuple[EngineChange, ...]:
    """Return every engine that endpoints `after` need and `before` did not, or nobody has built."""
    old = {target.engine_key: target for item in before.values() for target in item.built_targets}
    found: dict[str, EngineChange] = {}
    sources = _plan_sources(head, after.values())
    measured = _known_engines(head, (*before.values(), *after.values()))
    for deployment in after.values():
        for target in _unbuilt_targets(deployment):
            if target.engine_key not in old or target.lock_entry is None:
                previous = previous_target(target, old.values())
                source = sources.get(target.engine_key)
                found.setdefault(
                    target.engine_key,
                    _change(head, deployment, target, previous, source, measured),
                )
    return tuple(found[key] for key in sorted(found, key=lambda key: (found[key].model, key)))


def _unbuilt_targets(deployment: Deployment) -> Iterator[Target]:
    """Yield the engines of an endpoint, and the unbuilt models of an ensemble to be built."""
    for target in deployment.targets:
        if target.lock_entry is None:
            yield from (step for step in target.steps if step.lock_entry is None)
        yield target


def _plan_sources(head: Tree, after: Iterable[Deployment]) -> dict[str, PlanSource]:
    """Return the engines whose plans the engines to build are packaged of, by engine key.

    By the locks alone: whether their archives are in S3 is not known here.
    """
    deployments_after = tuple(after)
    missing = [
        target
        for deployment in deployments_after
        for target in _unbuilt_targets(deployment)
        if target.lock_entry is None and _other_builder(head, deployment, target) is None
    ]
    if not missing:
        return {}
    environment = deployments_after[0].environment
    signers = [parse_public_key(signer) for signer in environment.trusted_signers]
    locked = locked_plans(head.root / environment.locks, plan_keys(missing))
    trusted = {
        plan: [item for item in entries if not signers or item.signature_fault(signers) is None]
        for plan, entries in locked.items()
    }
    return plan_sources(missing, trusted)


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
    source: PlanSource | None,
    measured: Sequence[MeasuredEngine],
) -> EngineChange:
    environment, instance = deployment.environment, target.instance_type
    is_missing = target.lock_entry is None
    built_in = _other_builder(head, deployment, target) if is_missing else None
    last = None if previous is None else previous.lock_entry
    is_built_here = source is not None or (is_missing and built_in is None)
    return EngineChange(
        model=target.model.name,
        key=target.engine_key,
        instance_type=instance.name,
        compute_capability=instance.compute_capability,
        gpu=instance.gpu,
        route=compile_route(environment, target) if source is None else PACKAGING_ROUTE,
        state="missing" if is_missing else "locked",
        built_in=built_in,
        plan_from=None if source is None else source.engine_key,
        estimate=build_estimate(environment, target, last, source) if is_built_here else None,
        before=evidence(previous),
        after=evidence(target),
        predictions=engine_predictions(head.root, environment.region, target, last, measured),
    )


def _known_engines(head: Tree, deployments_of: Sequence[Deployment]) -> tuple[MeasuredEngine, ...]:
    """Return the engines that were measured: by the locks of these endpoints, and as shipped."""
    targets = [target for item in deployments_of for target in item.targets]
    if all(target.lock_entry is not None for target in targets):
        return ()
    unique = {target.engine_key: target for target in targets}
    return (*locked_engines(head.root, unique.values()), *measured_engines())


def _other_builder(head: Tree, deployment: Deployment, target: Target) -> str | None:
    """Return the environment that this one receives a missing engine from, if it deploys it."""
    source = deployment.environment.promotes_from
    if source is None or source not in head.views:
        return None
    keys = {item.engine_key for other in deployments(head, source) for item in other.targets}
    return source if target.engine_key in keys else None
