"""Why an endpoint's engines cannot be deployed, one sentence each; nothing when they can."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from onboarding import names
from onboarding.deployment import Deployment, Target
from onboarding.lock import LockEntry
from onboarding.manifest import TensorRecord
from onboarding.resolve import runtime_identity


def engine_faults(deployment: Deployment) -> tuple[str, ...]:
    """Engines that are missing or were built for other hardware, runtime or configuration."""
    return tuple(
        fault for target in deployment.targets for fault in _target_faults(deployment, target)
    )


def _target_faults(deployment: Deployment, target: Target) -> Iterator[str]:
    model = target.model.name
    command = f"roundhouse build --env {deployment.environment.name} --model {model}"
    if target.lock_entry is None:
        yield (
            f"No lock has engine {target.engine_key} of model '{model}' for endpoint"
            f" '{deployment.name}'; run: {command}"
        )
        return
    needs = f"and endpoint '{deployment.name}' needs"
    for what, locked, needed in _comparisons(deployment, target, target.lock_entry):
        if locked != needed:
            yield (
                f"The locked engine of model '{model}' has {what} {locked}, {needs} {needed}; run:"
                f" {command}"
            )


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


def signature_faults(deployment: Deployment) -> tuple[str, ...]:
    """Every joined model whose inputs or outputs are others than the endpoint's own.

    No client knows which variant answers.
    """
    if len(deployment.variants) == 1:
        return ()
    (own,) = deployment.own.targets
    joined = [target for variant in deployment.variants[1:] for target in variant.targets]
    return tuple(fault for target in joined for fault in _faults(own, target))


def _faults(own: Target, joined: Target) -> Iterator[str]:
    if own.lock_entry is None or joined.lock_entry is None:
        return
    ours, theirs = own.lock_entry.manifest, joined.lock_entry.manifest
    for what, expected, given in (
        ("inputs", ours.inputs, theirs.inputs),
        ("outputs", ours.outputs, theirs.outputs),
    ):
        if not _are_alike(expected, given):
            yield (
                f"Model '{joined.model.name}' answers beside '{own.model.name}', and its {what} are"
                f" {_tensor_list(given)}, not {_tensor_list(expected)}; make them alike, or "
                "describe an"
                " endpoint of its own."
            )


def _are_alike(expected: Sequence[TensorRecord], given: Sequence[TensorRecord]) -> bool:
    """The same names, datatypes and sizes; a dynamic size is like any other."""
    by_name = {tensor.name: tensor for tensor in given}
    return by_name.keys() == {tensor.name for tensor in expected} and all(
        _is_alike(tensor, by_name[tensor.name]) for tensor in expected
    )


def _is_alike(one: TensorRecord, other: TensorRecord) -> bool:
    sizes = one.datatype == other.datatype and len(one.shape) == len(other.shape)
    return sizes and all(
        -1 in pair or len(set(pair)) == 1 for pair in zip(one.shape, other.shape, strict=True)
    )


def _tensor_list(tensors: Sequence[TensorRecord]) -> str:
    return (
        ", ".join(f"{tensor.name} {tensor.datatype} {list(tensor.shape)}" for tensor in tensors)
        or "none"
    )
