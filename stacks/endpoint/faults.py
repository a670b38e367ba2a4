"""Why an endpoint's engines cannot be deployed, one sentence each; nothing when they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.manifest import TensorRecord
from onboarding.resolve import runtime_identity


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
    others = {tensor.name: tensor for tensor in given}
    return others.keys() == {tensor.name for tensor in expected} and all(
        tensor.datatype == others[tensor.name].datatype
        and _fits(tensor.shape, others[tensor.name].shape)
        for tensor in expected
    )


def _fits(shape: Sequence[int], other: Sequence[int]) -> bool:
    return len(shape) == len(other) and all(
        -1 in sizes or sizes[0] == sizes[1] for sizes in zip(shape, other, strict=True)
    )


def _tensor_list(tensors: Sequence[TensorRecord]) -> str:
    texts = (f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in tensors)
    return ", ".join(texts) or "none"
