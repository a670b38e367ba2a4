"""Engines that a change asks for: what changed their keys, what builds take, what locks say."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from onboarding.deployment import Deployment, Target
from onboarding.document import Document, KeyPath
from onboarding.ensemble_spec import EnsembleSpec, ensemble_key
from onboarding.keys import engine_key, runtime_name
from onboarding.lock import LockEntry
from onboarding.model_spec import ModelSpec
from onboarding.plan_source import PlanSource, locked_plans, plan_keys, plan_sources
from onboarding.platform import PACKAGING_ROUTE, InstanceType, ServingPlatform
from onboarding.repository_spec import RepositorySpec, repository_key
from onboarding.resolve import deployments, quantization_mode, runtime_identity
from onboarding.signature import parse_public_key
from onboarding.spec_faults import path_text
from onboarding.tree import Tree
from onboarding.validation import validate
from roundhouse.deploy.builds.requests import compile_route
from roundhouse.gitops.build_estimates import build_estimate
from roundhouse.gitops.plan_document import Cause, EngineChange, EngineEvidence


def engine_changes(
    base: Tree | None,
    head: Tree,
    before: Mapping[str, Deployment],
    after: Mapping[str, Deployment],
) -> tuple[EngineChange, ...]:
    """Return every engine of the endpoints `after` that those `before` lack, or nobody has built.

    `base` None: what was before is not known by its files.
    """
    old = {target.engine_key: target for item in before.values() for target in item.built_targets}
    found: dict[str, EngineChange] = {}
    sources = _plan_sources(head, after.values())
    for deployment in after.values():
        for target in _unbuilt_targets(deployment):
            if target.engine_key not in old or target.lock_entry is None:
                previous = previous_target(target, old.values())
                source = sources.get(target.engine_key)
                found.setdefault(
                    target.engine_key, _change(base, head, deployment, target, previous, source)
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


def key_causes(
    base: Tree, head: Tree, deployment: Deployment, target: Target, previous: Target
) -> Iterator[Cause]:
    """Yield every field and dataset whose change alone changes the key.

    Each differing field is put back, one at a time: where the key becomes another, it counted.
    """
    environment, name = deployment.environment.name, target.model.name
    old = base.views[environment].models[name].document
    new = head.views[environment].models[name].document

    def key(
        data: Mapping[str, Any],
        digests: Mapping[str, str] = head.dataset_digests,
        platform: ServingPlatform = deployment.platform,
        instance: Any = target.instance_type,
    ) -> str | None:
        checked = validate(ModelSpec, Document(file=new.file, data=data, places=new.places))
        if not checked.is_valid:
            return None
        if isinstance(checked.spec, EnsembleSpec):
            return ensemble_key(checked.spec, _step_keys(target), digests)
        return _key(checked.spec, platform, instance, digests)

    for path, before, after in _differences(old.data, new.data, ()):
        digests = {**base.dataset_digests, **head.dataset_digests}
        if path[0] != "endpoint" and key(_with(new.data, path, before), digests) != key(new.data):
            place = new.at(*path)
            yield Cause(
                path=path_text(path), file=place.file, line=place.line, before=before, after=after
            )
    for dataset, digest in head.dataset_digests.items():
        before = base.dataset_digests.get(dataset, digest)
        put_back = {**head.dataset_digests, dataset: before}
        if before != digest and key(new.data, put_back) != key(new.data):
            yield Cause(path="bytes", file=dataset, line=None, before=before, after=digest)
    yield from _step_causes(previous, target)
    instances = (previous.instance_type, target.instance_type)
    if key(new.data, instance=instances[0]) != key(new.data):
        place = new.at("endpoint", "instance_type")
        yield Cause(
            path="endpoint.instance_type",
            file=place.file,
            line=place.line,
            before=instances[0].name,
            after=instances[1].name,
        )
    platforms = (base.views[environment].environment, head.views[environment].environment)
    if platforms[0].spec.platform != platforms[1].spec.platform:
        place = platforms[1].document.at("platform")
        yield Cause(
            path="platform",
            file=place.file,
            line=place.line,
            before=platforms[0].spec.platform,
            after=platforms[1].spec.platform,
        )


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


def _key(
    spec: ModelSpec, platform: ServingPlatform, instance: InstanceType, digests: Mapping[str, str]
) -> str | None:
    """Return an engine's key; None where the platform has no such runtime."""
    if isinstance(spec, RepositorySpec):
        return repository_key(spec, platform, instance)
    if platform.runtime_version(runtime_name(spec, instance)) is None:
        return None
    return engine_key(
        spec,
        runtime=runtime_identity(spec, platform, instance),
        instance=instance,
        quantization=quantization_mode(spec, platform),
        dataset_digests=digests,
    )


def _change(
    base: Tree | None,
    head: Tree,
    deployment: Deployment,
    target: Target,
    previous: Target | None,
    source: PlanSource | None,
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
        because=()
        if base is None or previous is None
        else tuple(key_causes(base, head, deployment, target, previous)),
        estimate=build_estimate(environment, target, last, source) if is_built_here else None,
        before=evidence(previous),
        after=evidence(target),
    )


def _other_builder(head: Tree, deployment: Deployment, target: Target) -> str | None:
    """Return the environment that this one receives a missing engine from, if it deploys it."""
    source = deployment.environment.promotes_from
    if source is None or source not in head.views:
        return None
    keys = {item.engine_key for other in deployments(head, source) for item in other.targets}
    return source if target.engine_key in keys else None


def _differences(before: Any, after: Any, path: KeyPath) -> Iterator[tuple[KeyPath, Any, Any]]:
    """Yield every smallest part that differs; a part that is absent on one side is None."""
    if before == after:
        return
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted(before.keys() | after.keys()):
            yield from _differences(before.get(key), after.get(key), (*path, key))
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(old, new, (*path, index))
    else:
        yield path, before, after


def _step_keys(target: Target) -> dict[str, str]:
    return {step.model.name: step.engine_key for step in target.steps}


def _step_causes(previous: Target, target: Target) -> Iterator[Cause]:
    """Yield every model of an ensemble that has another engine than before."""
    keys = _step_keys(previous)
    for name, after in _step_keys(target).items():
        before = keys.get(name, after)
        if before != after:
            yield Cause(
                path="engine", file=f"models/{name}.yaml", line=None, before=before, after=after
            )


def _with(data: Mapping[str, Any], path: KeyPath, value: Any) -> dict[str, Any]:
    """Return a copy of a document's data with one part replaced; None removes a key."""
    result: dict[str, Any] = copy.deepcopy(dict(data))
    parent: Any = result
    for step in path[:-1]:
        parent = parent[step]
    if value is None and isinstance(parent, dict):
        parent.pop(path[-1], None)
    else:
        parent[path[-1]] = value
    return result
