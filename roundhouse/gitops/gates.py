"""What must be known of an endpoint before its engines or checkpoint are promoted. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from onboarding.deployment import DeployedEndpoint, Deployment, signature_faults
from onboarding.lock import LockEntry
from onboarding.text_generation.generation_deployment import GenerationDeployment


def gate_faults(
    deployment: DeployedEndpoint, source: DeployedEndpoint, rang: datetime | None
) -> Iterator[str]:
    """Yield why an endpoint may not be promoted, one sentence each with the way out.

    `source`: the endpoint in the environment before; `rang`: when an alarm of it last rang within
    the quiet time that is asked for.
    """
    before, name = source.environment.name, deployment.environment.name
    served = {artifact.key for artifact in source.artifacts}
    for artifact in deployment.artifacts:
        if artifact.entry is None:
            yield (
                f"{artifact.model}: no lock of {before} has {artifact.key}; `roundhouse build "
                f"--env {before} --model {artifact.model}` builds it, where that environment "
                "serves the same instance type"
            )
        elif artifact.key not in served:
            yield (
                f"{artifact.model}: {before} does not serve {artifact.entry.noun} {artifact.key}, "
                f"which {name} needs, so nobody tested it there; give both the same instance types"
            )
        if isinstance(artifact.entry, LockEntry):
            yield from _accuracy_faults(artifact.entry)
    if isinstance(deployment, Deployment):
        yield from (str(fault).removesuffix(".") for fault in signature_faults(deployment))
    elif isinstance(deployment, GenerationDeployment):
        faults = (deployment.problem, deployment.signature_fault)
        yield from (fault.removesuffix(".") for fault in faults if fault is not None)
    if rang is not None:
        yield (
            f"{source.name}: an alarm rang at {rang:%Y-%m-%d %H:%M} UTC, within the last "
            f"{deployment.environment.gates.quiet_minutes} minutes (gates.quiet_minutes); find the "
            "cause, or wait"
        )


def _accuracy_faults(entry: LockEntry) -> Iterator[str]:
    manifest = entry.manifest
    failed = [item for item in manifest.accuracy_records if item.verdict == "fail"]
    chosen = [item for item in failed if item.subject.startswith(manifest.precision)]
    if chosen:
        yield (
            f"{manifest.model}: its {chosen[0].subject} is below the accuracy budget; build it "
            "again"
        )
