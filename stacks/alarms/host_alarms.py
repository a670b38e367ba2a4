"""Alarms on instances: that there are any, and what they have left of memory and disk."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from onboarding.memory import pool_memories
from stacks.alarms.alarm import HOST, UNDER, Alarm, Computed, Condition, Metric
from stacks.capacity.engine import gpus_used
from stacks.scaling.resources import dimensions
from stacks.scaling.targets import fewest

MEMORY_PERCENT, DISK_PERCENT = 90, 85
FULL = Condition(threshold=MEMORY_PERCENT, points=5, periods=5)


def host_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Alarms on an instance's memory and disk.

    A multi-model endpoint fills its disk with archives, and its memory where not all models fit:
    neither has an alarm there.
    """
    if fewest(variant) > 0:
        yield _no_instances(deployment, variant)
    if not deployment.multi_model:
        yield _disk(deployment, variant)
    if not fills_its_memory(deployment):
        yield _host_memory(deployment, variant)
        if all(pool.instance_type.is_gpu for pool in variant.pools):
            yield _gpu_memory(deployment, variant)


def fills_its_memory(deployment: Deployment) -> bool:
    """Whether models push each other out of memory, so that it is full whenever all is well."""
    return any(not plan.fits for plan in pool_memories(deployment) if plan.memory is not None)


def used_gpus(deployment: Deployment, variant: Variant) -> int:
    """GPUs of an instance that hold the model.

    Of several instance types the most, so that nothing is cried too early.
    """
    return max(1, *(gpus_used(deployment, pool.instance_type) for pool in variant.pools))


def _no_instances(deployment: Deployment, variant: Variant) -> Alarm:
    return Alarm(
        part="NoInstances",
        kind="no-instances",
        variant=variant,
        watched=_metric(deployment, variant, "MemoryUtilization", "SampleCount"),
        condition=Condition(
            threshold=1, comparison=UNDER, points=5, periods=5, missing="breaching"
        ),
        explanation=(
            "no instance has reported its memory for five minutes, which each in service does every"
            " minute"
        ),
    )


def _disk(deployment: Deployment, variant: Variant) -> Alarm:
    return Alarm(
        part="Disk",
        kind="disk",
        variant=variant,
        watched=_metric(deployment, variant, "DiskUtilization", "Maximum"),
        condition=Condition(threshold=DISK_PERCENT, points=5, periods=5),
        explanation=f"the fullest instance's disk is over {DISK_PERCENT} % full",
    )


def _host_memory(deployment: Deployment, variant: Variant) -> Alarm:
    return Alarm(
        part="HostMemory",
        kind="host-memory",
        variant=variant,
        watched=_metric(deployment, variant, "MemoryUtilization", "Maximum"),
        condition=FULL,
        explanation=f"the fullest instance's host memory is over {MEMORY_PERCENT} % used",
    )


def _gpu_memory(deployment: Deployment, variant: Variant) -> Alarm:
    """The metric counts 100 for each GPU."""
    gpus, memory = (
        used_gpus(deployment, variant),
        _metric(deployment, variant, "GPUMemoryUtilization", "Maximum"),
    )
    each = Computed(
        expression=f"memory / {gpus}",
        label=f"memory of each of {gpus} GPUs, %",
        metrics={"memory": memory},
    )
    return Alarm(
        part="GpuMemory",
        kind="gpu-memory",
        variant=variant,
        watched=memory if gpus == 1 else each,
        condition=FULL,
        explanation=f"the fullest instance's GPU memory is over {MEMORY_PERCENT} % used"
        + (f", of {gpus} GPUs" if gpus > 1 else ""),
    )


def _metric(deployment: Deployment, variant: Variant, name: str, statistic: str) -> Metric:
    return Metric(
        namespace=HOST, name=name, dimensions=dimensions(deployment, variant), statistic=statistic
    )
