"""Published archives, compared with their lock entries, trusted signers and hardware."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import singledispatch

from onboarding.deployment import DeployedEndpoint, Deployment, Target
from onboarding.lock import LockEntry
from onboarding.names import ENGINES_PREFIX, NETWORKS_PREFIX, artifact_bucket
from onboarding.resolve import runtime_identity
from onboarding.text_generation.checkpoint_key import checkpoint_prefix
from onboarding.text_generation.checkpoint_lock import CheckpointEntry
from onboarding.text_generation.generation_deployment import GenerationDeployment
from roundhouse.aws.clients import Client, list_objects, object_sha256
from roundhouse.deploy import prune as tags
from roundhouse.errors import DeployFailedError
from roundhouse.session import Session


def verify(session: Session, endpoints: Sequence[DeployedEndpoint]) -> int:
    """Compare what these endpoints serve with lock, signers and hardware; return how many.

    Archives by their bytes. S3 compared each file of a checkpoint with its sha256 when it was
    copied, and nothing replaces a published one: names and sizes are compared here. What
    `roundhouse prune` has marked since, on another branch, is needed again: the mark is taken off.
    Raises DeployFailedError: the first fault.
    """
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    with session.report.step("Verifying archives and checkpoints against their locks") as step:
        unsigned = next((one for item in endpoints for one in item.signature_faults()), None)
        if unsigned is not None:
            raise DeployFailedError(f"Refused before deploying: {unsigned}")
        prefixes = [path for item in endpoints for path in verified_prefixes(item, s3, bucket)]
        freed = tags.keep(s3, bucket, dict.fromkeys(prefixes))
        count = sum(len(item.artifacts) for item in endpoints)
        marks = f", the mark of `roundhouse prune` taken off {freed} objects" if freed else ""
        step.finish(f"{count} as their locks say{marks}")
    return count


@singledispatch
def verified_prefixes(endpoint: DeployedEndpoint, s3: Client, bucket: str) -> Iterator[str]:
    """Yield the prefixes of what an endpoint needs in S3. Raises DeployFailedError.

    Each kind of workload registers its own function.
    """
    raise NotImplementedError


@verified_prefixes.register
def _(deployment: Deployment, s3: Client, bucket: str) -> Iterator[str]:
    for target in deployment.targets:
        entry = target.lock_entry
        if entry is None:
            raise DeployFailedError(
                f"{target.model.name} has no engine {target.engine_key} in its lock; "
                f"{_build_command(deployment, target)} builds it."
            )
        fault = lock_fault(deployment, target, entry) or archive_fault(
            deployment, target, entry, object_sha256(s3, bucket, entry.archive.path)
        )
        if fault is not None:
            raise DeployFailedError(f"Refused before deploying: {fault}")
        yield f"{ENGINES_PREFIX}/{entry.manifest.engine_key}/"
        yield from (f"{NETWORKS_PREFIX}/{key}/" for key in entry.manifest.network_keys.values())


@verified_prefixes.register
def _(deployment: GenerationDeployment, s3: Client, bucket: str) -> Iterator[str]:
    if deployment.entry is None:
        raise DeployFailedError(f"Refused before deploying: {deployment.problem}")
    prefix = checkpoint_prefix(deployment.entry.checkpoint_key)
    fault = checkpoint_fault(deployment, deployment.entry, list_objects(s3, bucket, prefix))
    if fault is not None:
        raise DeployFailedError(f"Refused before deploying: {fault}")
    # The checkpoint's record lies beside it.
    yield prefix.removesuffix("/")


def checkpoint_fault(
    deployment: GenerationDeployment, entry: CheckpointEntry, held: Mapping[str, int]
) -> str | None:
    """Return why a checkpoint cannot be deployed, or None.

    `held`: bytes of each object under its prefix, by key.
    """
    (artifact,) = deployment.artifacts
    command = deployment.source_command(artifact)
    prefix = checkpoint_prefix(entry.checkpoint_key)
    where = f"s3://{artifact_bucket(deployment.environment)}/{prefix}"
    wanted = {f"{prefix}{file.path}": file.size_bytes for file in entry.files}
    for path, size in wanted.items():
        if held.get(path) != size:
            found = "is not there" if path not in held else f"has {held[path]} bytes, not {size}"
            return (
                f"{where}: {path.removeprefix(prefix)} of '{deployment.name}' {found}; run "
                f"{command}."
            )
    extra = sorted(held.keys() - wanted.keys())
    if extra:
        return (
            f"{where}: holds {extra[0].removeprefix(prefix)}, which the lock of "
            f"'{deployment.name}' does not name and every copy would load; delete it."
        )
    return None


def lock_fault(deployment: Deployment, target: Target, entry: LockEntry) -> str | None:
    """Return why a lock entry cannot be deployed here, or None.

    Compares key, compute capability, GPU model, runtime build and manifest digest.
    """
    manifest, where = entry.manifest, f"{target.model.name} for endpoint {deployment.name}"
    again = f"build it again: {_build_command(deployment, target)}"
    runtime = runtime_identity(target.model, deployment.platform, target.instance_type)
    facts = (
        ("key", manifest.engine_key, target.engine_key),
        (
            "compute capability",
            manifest.compute_capability,
            target.instance_type.compute_capability,
        ),
        ("GPU model", manifest.gpu or "any", target.plan_gpu or "any"),
        ("runtime", *(f"{item.name} {item.version}" for item in (manifest.runtime, runtime))),
    )
    for noun, locked, needed in facts:
        if locked != needed:
            return (
                f"{where}: the lock's engine has {noun} {locked}, and {needed} is needed on "
                f"{target.instance_type.name}; {again}."
            )
    if manifest.sha256() != entry.archive.manifest_sha256:
        return (
            f"{where}: the lock's manifest is not the one that was built (edited by hand?); "
            f"restore it from git, or {again}."
        )
    return None


def archive_fault(
    deployment: Deployment, target: Target, entry: LockEntry, found_sha256: str | None
) -> str | None:
    """Return why the archive in S3 cannot be deployed, or None.

    `found_sha256` None: there is no such object.
    """
    bucket = artifact_bucket(deployment.environment)
    where = f"s3://{bucket}/{entry.archive.path}"
    command = _build_command(deployment, target)
    if found_sha256 is None:
        return (
            f"{where}: the lock of {target.model.name} names this archive and it is not there; "
            f"{command} builds it again."
        )
    if found_sha256 != entry.archive.sha256:
        return (
            f"{where}: its bytes have sha256 {found_sha256[:12]}…, the lock of "
            f"{target.model.name} says {entry.archive.sha256[:12]}…; do not deploy it: delete "
            f"s3://{bucket}/{ENGINES_PREFIX}/{entry.manifest.engine_key}/ whole, since what stays "
            f"there is never written again, then {command}."
        )
    return None


def _build_command(deployment: Deployment, target: Target) -> str:
    return f"`roundhouse build --env {deployment.environment.name} --model {target.model.name}`"
