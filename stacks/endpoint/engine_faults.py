"""Why an endpoint's engines cannot be deployed, one sentence each; nothing when they can."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.resolve import runtime_identity


def engine_faults(deployment: Deployment) -> tuple[str, ...]:
    """Every engine that is missing, or was made for other hardware, another runtime or another
    configuration.
    """
    return tuple(
        fault for target in deployment.targets for fault in _target_faults(deployment, target)
    )


def _target_faults(deployment: Deployment, target: Target) -> Iterator[str]:
    model = target.model.name
    command = f"roundhouse build --env {deployment.environment.name} --model {model}"
    if target.lock_entry is None:
        yield f"No lock has engine {target.engine_key} of model '{model}' for endpoint '{deployment.name}'; run: {command}"
        return
    needs = f"and endpoint '{deployment.name}' needs"
    for what, locked, needed in _comparisons(deployment, target, target.lock_entry):
        if locked != needed:
            yield f"The locked engine of model '{model}' has {what} {locked}, {needs} {needed}; run: {command}"


def _comparisons(
    deployment: Deployment, target: Target, entry: LockEntry
) -> Iterator[tuple[str, str, str]]:
    manifest = entry.manifest
    needed = runtime_identity(deployment.platform, target.instance_type)
    yield "compute capability", manifest.compute_capability, target.instance_type.compute_capability
    yield "GPU model", _gpu(manifest.gpu), _gpu(target.plan_gpu)
    yield (
        "runtime",
        f"{manifest.runtime.name} {manifest.runtime.version}",
        f"{needed.name} {needed.version}",
    )
    yield "key", manifest.engine_key, target.engine_key
    yield "archive", entry.archive.path, names.engine_archive_path(target.engine_key)


def _gpu(model: str | None) -> str:
    return "any" if model is None else model
