"""Findings on locked engines: signatures, memory that is too small, evictions and their cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from onboarding.deployment import Deployment, Pool, Target
from onboarding.document import Place
from onboarding.fault import Fault, FaultsError, sorted_faults
from onboarding.lock import LockEntry
from onboarding.platform import InstanceType, instance_types
from onboarding.resolve import deployments
from onboarding.tree import Tree

MIB_A_GIB = 1024
CUDA_CONTEXT_MIB = 512.0
"""What a process takes once: the driver's context, Triton's own pools, TensorRT's start, and the
reserve of CUDA's memory pool, which grows by 32 MiB and keeps the memory of unloaded models for the
next ones. A model's measured memory leaves it out.
"""
GDDR_SHARE, HBM_SHARE = 1 / 16, 1 / 100
"""Of the nominal memory, kept by error correction and firmware: a T4 shows 15360 of 16384 MiB, an
A10G 23028 of 24576.
"""
HBM = frozenset({"8.0", "9.0", "10.0", "10.3"})
HOST_MIB = 1024.0
"""Assumed for the operating system, SageMaker's agents and the server without a model; not measured
on SageMaker.
"""


@dataclass(frozen=True, kw_only=True)
class InstanceMemory:
    """Memory of one GPU, or of the host of an instance without one."""

    kind: str
    total_mib: float
    usable_mib: float


@dataclass(frozen=True, kw_only=True)
class ModelMemory:
    """Memory of one loaded model, and the seconds that loading it again takes after an eviction."""

    name: str
    mib: float
    load_seconds: float


@dataclass(frozen=True, kw_only=True)
class PoolMemory:
    """The models of a multi-model endpoint on one instance type.

    `memory` None: the platform data do not know the type's.
    """

    endpoint: str
    instance_type: str
    memory: InstanceMemory | None
    models: tuple[ModelMemory, ...]
    """Those measured, by name."""
    too_large: tuple[ModelMemory, ...]
    """The models of which not even one copy of the engine fits alone; with one copy's size."""
    unmeasured: tuple[str, ...]

    @property
    def capacity_mib(self) -> float:
        """Memory that models may take."""
        return 0.0 if self.memory is None else self.memory.usable_mib

    @property
    def total_mib(self) -> float:
        """Memory that all models take together."""
        return total_mib(self.models)

    @property
    def fits(self) -> bool:
        """True when all measured models fit at once; False where the memory is unknown."""
        return self.memory is not None and self.total_mib <= self.capacity_mib


def instance_memory(instance: InstanceType) -> InstanceMemory | None:
    """Return the memory that models share: each GPU holds them all. None where it is not known."""
    if instance.is_gpu:
        if instance.gpu_memory_gib is None:
            return None
        total = instance.gpu_memory_gib * MIB_A_GIB
        share = HBM_SHARE if instance.compute_capability in HBM else GDDR_SHARE
        return InstanceMemory(
            kind="GPU memory", total_mib=total, usable_mib=total * (1 - share) - CUDA_CONTEXT_MIB
        )
    if instance.memory_gib is None:
        return None
    total = instance.memory_gib * MIB_A_GIB
    return InstanceMemory(kind="host memory", total_mib=total, usable_mib=total - HOST_MIB)


def pool_memories(deployment: Deployment) -> tuple[PoolMemory, ...]:
    """Return the memory of each instance type of a multi-model endpoint, else nothing."""
    if not deployment.multi_model:
        return ()
    return tuple(pool_memory(deployment, pool) for pool in deployment.own.pools)


def pool_memory(deployment: Deployment, pool: Pool) -> PoolMemory:
    """Return the memory of one instance type and of the models on it."""
    memory = instance_memory(pool.instance_type)
    models, too_large, unmeasured = [], [], []
    for target in sorted(pool.targets, key=lambda target: target.model.name):
        if target.lock_entry is None:
            continue
        name, one = target.model.name, _one_copy_mib(target, target.lock_entry)
        if one is None:
            unmeasured.append(name)
        else:
            # On a GPU the copies share the weights, which nobody measured apart: this is the most.
            copies = target.model.serving.instances_per_gpu if deployment.server == "triton" else 1
            seconds = target.lock_entry.manifest.load_seconds
            models.append(ModelMemory(name=name, mib=one * copies, load_seconds=seconds))
            if memory is not None and one > memory.usable_mib:
                too_large.append(replace(models[-1], mib=one))
    return PoolMemory(
        endpoint=deployment.name,
        instance_type=pool.instance_type.name,
        memory=memory,
        models=tuple(models),
        too_large=tuple(too_large),
        unmeasured=tuple(unmeasured),
    )


def fewest_resident(models: Sequence[ModelMemory], capacity_mib: float) -> int:
    """Return how many models stay in memory at least: as many of the largest as fit."""
    largest_first = sorted(models, key=lambda model: (-model.mib, model.name))
    counts = range(len(models) + 1)
    fitting = (count for count in counts if total_mib(largest_first[:count]) <= capacity_mib)
    return max(fitting, default=0)


def total_mib(models: Sequence[ModelMemory]) -> float:
    """Return what models take together, in MiB: the same in whatever order."""
    return math.fsum(model.mib for model in models)


def _one_copy_mib(target: Target, entry: LockEntry) -> float | None:
    """Measured memory of one copy of the engine; None when it was not measured there."""
    manifest = entry.manifest
    return manifest.device_memory_mib if target.instance_type.is_gpu else manifest.host_memory_mib


@dataclass(frozen=True, kw_only=True)
class MemoryFindings:
    """What cannot work by what the locks say, and what works at a cost."""

    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def memory_findings(tree: Tree) -> MemoryFindings:
    """Return the findings of every environment; none of a tree with faults of its own."""
    faults: list[Fault] = []
    notes: list[str] = []
    for environment in () if tree.faults else tree.views:
        try:
            environment_deployments = deployments(tree, environment)
        except FaultsError as error:
            faults.extend(error.faults)
            continue
        for deployment in environment_deployments:
            faults.extend(deployment.unsigned_engines())
            faults.extend(_placed_faults(tree, deployment))
            notes.extend(f"{environment}: {note}" for note in memory_notes(deployment))
    return MemoryFindings(faults=sorted_faults(faults), notes=tuple(dict.fromkeys(notes)))


def memory_faults(deployment: Deployment) -> tuple[str, ...]:
    """Return a message for every model that does not fit into an instance, even alone."""
    pools = [pool for variant in deployment.variants for pool in variant.pools]
    return tuple(dict.fromkeys(fault for pool in pools for fault in _pool_faults(deployment, pool)))


def memory_notes(deployment: Deployment) -> tuple[str, ...]:
    """Return a message for evictions of a multi-model endpoint, and for memory not measured."""
    return tuple(note for memory in pool_memories(deployment) for note in pool_notes(memory))


def pool_notes(pool: PoolMemory) -> Iterator[str]:
    """Return the notes on one instance type."""
    where = f"Endpoint '{pool.endpoint}' on {pool.instance_type}"
    if pool.memory is None:
        yield (
            f"{where}: the memory of this type is not known, so which models fit together is not "
            "either; add it to its row."
        )
        return
    for name in pool.unmeasured:
        yield (
            f"{where}: the {pool.memory.kind} of model '{name}' is not measured, so what fits "
            "beside "
            "it is not known; build it again where that can be measured."
        )
    if not pool.fits and not pool.too_large:
        yield f"{where}: {_eviction(pool, pool.memory)}"


def _placed_faults(tree: Tree, deployment: Deployment) -> Iterator[Fault]:
    for message in memory_faults(deployment):
        what, _, way_out = message.partition("; ")
        yield _instance_type_place(tree, deployment).fault(
            f"in environment {deployment.environment.name}, {what}", way_out=way_out
        )


def _instance_type_place(tree: Tree, deployment: Deployment) -> Place:
    view = tree.views[deployment.environment.name]
    if deployment.multi_model:
        return view.endpoints[deployment.name].document.at("instance_type")
    return view.models[deployment.name].document.at("endpoint", "instance_type")


def _pool_faults(deployment: Deployment, pool: Pool) -> Iterator[str]:
    memory = instance_memory(pool.instance_type)
    for model in pool_memory(deployment, pool).too_large:
        assert memory is not None
        yield (
            f"Model '{model.name}' takes {model.mib:.0f} MiB of {memory.kind} (measured), and "
            f"{pool.instance_type.name} of endpoint '{deployment.name}' leaves {_usable(memory)}; "
            f"{_larger_type(pool, model)}"
        )


def _eviction(pool: PoolMemory, memory: InstanceMemory) -> str:
    largest = max(pool.models, key=lambda model: model.mib)
    if largest.mib > pool.capacity_mib:
        return (
            f"the copies of '{largest.name}' take up to {largest.mib:.0f} MiB of "
            f"{memory.kind}, and "
            f"{_usable(memory)} are there for them; lower its 'serving.instances_per_gpu'."
        )
    slowest = max(pool.models, key=lambda model: (model.load_seconds, model.name))
    return (
        f"its {len(pool.models)} models take {pool.total_mib:.0f} MiB of {memory.kind} together, "
        f"and {_usable(memory)} are there for them: SageMaker unloads those that were used least "
        "recently, and a request for one of them waits until it is loaded, up to "
        f"{slowest.load_seconds:g} s for '{slowest.name}'. Put some of them on another endpoint, "
        "or choose an instance type with more memory."
    )


def _usable(memory: InstanceMemory) -> str:
    return f"{memory.usable_mib:.0f} of its {memory.total_mib:.0f} MiB"


def _larger_type(pool: Pool, model: ModelMemory) -> str:
    capability = pool.instance_type.compute_capability
    rows = [row for row in instance_types().values() if row.compute_capability == capability]
    memories = ((row.name, instance_memory(row)) for row in rows)
    fitting = [
        name for name, memory in memories if memory is not None and memory.usable_mib >= model.mib
    ]
    if not fitting:
        return "choose an instance type with more memory for each GPU, or a smaller model"
    return f"choose an instance type with more memory, such as {', '.join(fitting[:3])}"
