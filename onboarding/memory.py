"""Memory of an instance that models share: what each takes, and how many fit at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from onboarding.deployment import Deployment, Pool, Target
from onboarding.lock import LockEntry
from onboarding.platform import InstanceType

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

    @property
    def slowest(self) -> ModelMemory | None:
        """The model whose eviction costs most."""
        return max(self.models, key=lambda model: (model.load_seconds, model.name), default=None)


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
