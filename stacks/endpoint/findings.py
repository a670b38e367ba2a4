"""Why an endpoint cannot be deployed, and what a person should know of one before it is.

One sentence each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onboarding import names
from onboarding.aws_limits import (
    ENVIRONMENT_BYTES,
    ENVIRONMENT_VALUE_LENGTH,
    ENVIRONMENT_VARIABLE_COUNT,
    ROLLBACK_ALARM_COUNT,
)
from onboarding.deployment import Deployment, Target
from onboarding.fault import comma_list
from onboarding.lock import LockEntry
from onboarding.manifest import TensorRecord
from onboarding.memory import memory_faults, memory_notes
from onboarding.resolve import runtime_identity
from onboarding.text_generation.generation_deployment import GenerationDeployment
from onboarding.text_generation.platforms import versions_with
from stacks import generation_capacity as sizes
from stacks.alarms import endpoint_alarms, rollback_alarms
from stacks.engine_capacity import capacity_warnings
from stacks.rollout import LEAST_INSTANCES, effective_rollout, initial_count
from stacks.scaling import scaled_variants

GIGABYTE = 10**9
DISK_SHARE = 0.8
"""Of an instance's NVMe disk that checkpoints may fill; the rest holds image and caches."""


def endpoint_faults(deployment: Deployment | GenerationDeployment) -> tuple[str, ...]:
    """Why an endpoint cannot be deployed, one sentence each; empty when it can.

    `check` has refused what the files alone decide; these need the plan, the lock, or AWS.
    """
    if isinstance(deployment, GenerationDeployment):
        if deployment.problem is not None:
            return (deployment.problem,)
        return tuple(_container_faults(deployment))
    return (*engine_faults(deployment), *signature_faults(deployment), *memory_faults(deployment))


def engine_faults(deployment: Deployment) -> Iterator[str]:
    """Yield engines that are missing or were built for other hardware, runtime or configuration."""
    for target in deployment.targets:
        model = target.model.name
        command = f"roundhouse build --env {deployment.environment.name} --model {model}"
        if target.lock_entry is None:
            yield (
                f"No lock has engine {target.engine_key} of model '{model}' for endpoint"
                f" '{deployment.name}'; run: {command}"
            )
            continue
        for noun, locked, needed in _comparisons(deployment, target, target.lock_entry):
            if locked != needed:
                yield (
                    f"The locked engine of model '{model}' has {noun} {locked}, and endpoint"
                    f" '{deployment.name}' needs {needed}; run: {command}"
                )


def _comparisons(
    deployment: Deployment, target: Target, entry: LockEntry
) -> Iterator[tuple[str, str, str]]:
    manifest, instance = entry.manifest, target.instance_type
    built = manifest.runtime
    needed = runtime_identity(target.model, deployment.platform, instance)
    yield "compute capability", manifest.compute_capability, instance.compute_capability
    yield "GPU model", manifest.gpu or "any", target.plan_gpu or "any"
    yield "runtime", f"{built.name} {built.version}", f"{needed.name} {needed.version}"
    yield "key", manifest.engine_key, target.engine_key
    yield "archive", entry.archive.path, names.engine_archive_path(target.engine_key)


def signature_faults(deployment: Deployment) -> Iterator[str]:
    """Yield every joined model whose inputs or outputs are others than the endpoint's own.

    No client knows which variant answers.
    """
    for joined in (target for variant in deployment.variants[1:] for target in variant.targets):
        (own,) = deployment.own.targets
        if own.lock_entry is None or joined.lock_entry is None:
            continue
        ours, theirs = own.lock_entry.manifest, joined.lock_entry.manifest
        for noun, expected, given in (
            ("inputs", ours.inputs, theirs.inputs),
            ("outputs", ours.outputs, theirs.outputs),
        ):
            if not _are_alike(expected, given):
                yield (
                    f"Model '{joined.model.name}' answers beside '{own.model.name}', and its {noun}"
                    f" are {_tensor_list(given)}, not {_tensor_list(expected)}; make them alike, or"
                    " describe an endpoint of its own."
                )


def _are_alike(expected: Sequence[TensorRecord], given: Sequence[TensorRecord]) -> bool:
    """The same names, datatypes and sizes; a dynamic size is like any other."""
    own, others = ({tensor.name: tensor for tensor in tensors} for tensors in (expected, given))
    return own.keys() == others.keys() and all(
        tensor.datatype == others[name].datatype
        and len(tensor.shape) == len(others[name].shape)
        and all(
            -1 in sizes or sizes[0] == sizes[1]
            for sizes in zip(tensor.shape, others[name].shape, strict=True)
        )
        for name, tensor in own.items()
    )


def _tensor_list(tensors: Sequence[TensorRecord]) -> str:
    texts = (f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in tensors)
    return ", ".join(texts) or "none"


def endpoint_warnings(deployment: Deployment | GenerationDeployment) -> Iterator[str]:
    """Yield every warning; each is deployed all the same."""
    if isinstance(deployment, GenerationDeployment):
        return
    yield from scaling_warnings(deployment)
    subject = f"Endpoint '{deployment.name}'"
    if not deployment.endpoint.network_isolation:
        in_vpc = deployment.environment.network is not None
        reaches = "what the VPC's routes reach" if in_vpc else "the internet"
        yield (
            f"{subject}: its containers reach {reaches}, since network_isolation is false; no"
            " server of ours needs that."
        )
    alarms = [alarm.id for alarm in rollback_alarms(endpoint_alarms(deployment))]
    if len(alarms) > ROLLBACK_ALARM_COUNT:
        left_out = ", ".join(alarms[ROLLBACK_ALARM_COUNT:])
        yield (
            f"{subject} has {len(alarms)} alarms that would take a rollout back, and SageMaker"
            f" watches {ROLLBACK_ALARM_COUNT}; these only notify: {left_out}."
        )
    # An update retains a shadow's fixed count with the counts of the others.
    for variant in deployment.variants if scaled_variants(deployment) else ():
        if variant.role == "shadow":
            count = initial_count(variant)
            yield (
                f"{subject}: shadow {variant.name} begins with {count} instance"
                f"{'s' if count > 1 else ''} and keeps that count; to change it, take the shadow"
                " out for one deployment."
            )


def endpoint_notes(deployment: Deployment | GenerationDeployment) -> Iterator[str]:
    """Yield what a person may take otherwise than it is, one sentence each.

    Source: SageMaker API reference, `KmsKeyId` of CreateEndpointConfig.
    """
    subject = f"Endpoint '{deployment.name}'"
    if isinstance(deployment, GenerationDeployment):
        known = sizes.concurrency(deployment)
        if not known.is_measured:
            yield (
                f"{subject}: scaling and the bound of the queue follow {known.origin}, "
                f"{known.requests} requests a copy; measure it: `roundhouse bench "
                f"{deployment.name} --write`."
            )
        if not sizes.bounds_queue(deployment):
            yield (
                f"{subject}: vLLM {deployment.engine_version} has no bound of its queue; "
                f"{comma_list(versions_with(sizes.QUEUE_ARGUMENT))} has one."
            )
        if deployment.spec.endpoint.copies.min == 0:
            yield _from_zero_note(subject, sizes.first_copies(deployment))
        return
    instances = (pool.instance_type for variant in deployment.variants for pool in variant.pools)
    local_disks = sorted({instance.name for instance in instances if instance.local_nvme})
    if local_disks:
        yield (
            f"{subject}: the KMS key encrypts the storage volume, and not the local NVMe disk of "
            f"{', '.join(local_disks)}, which its hardware encrypts."
        )
    given, used = deployment.endpoint.rollout, effective_rollout(deployment)
    if deployment.is_component:
        yield _from_zero_note(subject, initial_count(deployment.own))
        yield f"{subject}: an update replaces its copies in batches, whatever `rollout` says."
    elif given != used:
        yield (
            f"{subject}: rollout {given} takes at most half of a variant's instances in a step, "
            f"and a variant may have one; updates are {used}, unless every scaling.min is "
            f"{LEAST_INSTANCES} or more."
        )


def scaling_warnings(deployment: Deployment) -> tuple[str, ...]:
    """Warnings of the scaling of every production variant.

    Capacity that is not measured or misses the SLO, and the evictions of a multi-model endpoint.
    """
    unmeasured = (
        warning
        for variant in deployment.variants
        if variant.role == "variant"
        for warning in capacity_warnings(deployment, variant)
    )
    return (*unmeasured, *memory_notes(deployment))


def _from_zero_note(subject: str, first: int) -> str:
    return (
        f"{subject}: it begins with {first} {'copy' if first == 1 else 'copies'}, since a component"
        " cannot be created without one, and the first request after a pause is refused and asks "
        "for an instance, the download and the start."
    )


def _container_faults(deployment: GenerationDeployment) -> Iterator[str]:
    """Yield variables that SageMaker does not take, and a checkpoint larger than the disk."""
    variables = sizes.environment_variables(deployment)
    subject = f"The container of endpoint '{deployment.name}'"
    if "Ref" in variables:
        yield (
            f"{subject} has an environment variable Ref, which CloudFormation takes for a "
            "reference; give it another name in serving.environment."
        )
    if len(variables) > ENVIRONMENT_VARIABLE_COUNT:
        yield (
            f"{subject} has {len(variables)} environment variables, and SageMaker takes "
            f"{ENVIRONMENT_VARIABLE_COUNT}; take some out of serving.environment."
        )
    for name, value in variables.items():
        if len(value.encode()) > ENVIRONMENT_VALUE_LENGTH:
            yield (
                f"{subject} has {len(value.encode())} bytes in {name}, and SageMaker takes "
                f"{ENVIRONMENT_VALUE_LENGTH}; name a file under /opt/ml/model in its place."
            )
    size = sum(len(text.encode()) for pair in variables.items() for text in pair)
    if size > ENVIRONMENT_BYTES:
        yield (
            f"{subject} has an environment of {size} bytes, and SageMaker takes "
            f"{ENVIRONMENT_BYTES}; put long texts into files of the checkpoint."
        )
    row, entry = sizes.instance_type(deployment), deployment.entry
    files = () if entry is None else entry.files
    size_gb = sum(file.size_bytes for file in files) / GIGABYTE
    if row.local_nvme_gb is not None and size_gb > row.local_nvme_gb * DISK_SHARE:
        yield (
            f"The checkpoint of endpoint '{deployment.name}' has {size_gb:.0f} GB, and {row.name} "
            f"has a disk of {row.local_nvme_gb} GB; choose a larger instance type."
        )
