"""Memory that an instance leaves to models, and memory that a model takes there, as its lock says."""

from __future__ import annotations

from dataclasses import dataclass

from onboarding.deployment import Deployment, Target
from onboarding.platform import InstanceType

MIB_A_GIB = 1024
CUDA_CONTEXT_MIB = 512.0
"""Of the driver's context and Triton's own pools; a model's measured memory leaves the context out.
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


def instance_memory(instance: InstanceType) -> InstanceMemory | None:
    """What models share: each GPU holds them all. None where the platform data do not know."""
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


def one_copy_mib(target: Target) -> float | None:
    """Measured memory of one copy of the engine where it is served; None when it is not built, or
    was not measured there.
    """
    if target.lock_entry is None:
        return None
    manifest = target.lock_entry.manifest
    return manifest.device_memory_mib if target.instance_type.is_gpu else manifest.host_memory_mib


def model_mib(deployment: Deployment, target: Target) -> float | None:
    """Of every copy that the server makes, at most: on a GPU they share the weights, which nobody
    measured apart.
    """
    one = one_copy_mib(target)
    copies = target.model.serving.instances_per_gpu if deployment.server == "triton" else 1
    return None if one is None else one * copies
