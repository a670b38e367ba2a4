"""Judges a published archive against its lock entry and against the hardware that is to load it,
before anything is deployed.
"""

from __future__ import annotations

from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.names import artifact_bucket
from onboarding.resolve import runtime_identity
from roundhouse.errors import DeployFailedError


def lock_fault(deployment: Deployment, target: Target, entry: LockEntry) -> str | None:
    """Why a lock entry cannot be deployed here, or None: key, compute capability, runtime build,
    manifest digest.
    """
    manifest, where = entry.manifest, f"{target.model.name} for endpoint {deployment.name}"
    again = f"build it again: `roundhouse build --env {deployment.environment.name} --model {target.model.name}`"
    if manifest.engine_key != target.engine_key:
        return f"{where}: the lock's engine has key {manifest.engine_key}, the model file asks for {target.engine_key}; {again}."
    capability = target.instance_type.compute_capability
    if manifest.compute_capability != capability:
        return (
            f"{where}: the engine was made for compute capability {manifest.compute_capability}, "
            f"{target.instance_type.name} has {capability}; {again}."
        )
    if manifest.gpu != target.plan_gpu:
        locked, needed = ("any" if gpu is None else gpu for gpu in (manifest.gpu, target.plan_gpu))
        return (
            f"{where}: the engine was made for GPU model {locked}, "
            f"{target.instance_type.name} needs {needed}; {again}."
        )
    runtime = runtime_identity(deployment.platform, target.instance_type)
    if manifest.runtime != runtime:
        made = f"{manifest.runtime.name} {manifest.runtime.version}"
        return f"{where}: the engine was made by {made}, the endpoint runs {runtime.name} {runtime.version}; {again}."
    if manifest.sha256() != entry.archive.manifest_sha256:
        return f"{where}: the lock's manifest is not the one that was built (edited by hand?); restore it from git, or {again}."
    return None


def archive_fault(
    deployment: Deployment, target: Target, entry: LockEntry, found_sha256: str | None
) -> str | None:
    """Why the archive in S3 cannot be deployed, or None.

    `found_sha256` None: there is no such object.
    """
    where = f"s3://{artifact_bucket(deployment.environment)}/{entry.archive.path}"
    command = f"`roundhouse build --env {deployment.environment.name} --model {target.model.name}`"
    if found_sha256 is None:
        return f"{where}: the lock of {target.model.name} names this archive and it is not there; {command} builds it again."
    if found_sha256 != entry.archive.sha256:
        return (
            f"{where}: its bytes have sha256 {found_sha256[:12]}…, the lock of {target.model.name} says "
            f"{entry.archive.sha256[:12]}…; do not deploy it: delete the object, then {command}."
        )
    return None


def require(fault: str | None) -> None:
    """Raises DeployFailedError with a fault, when there is one."""
    if fault is not None:
        raise DeployFailedError(f"Refused before deploying: {fault}")
