"""Alarms on instances: that there are any, and what they have left of memory and disk."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from onboarding.deployment import Deployment, Variant
from onboarding.memory import pool_memories
from onboarding.metrics import HOST
from stacks.alarms.alarm import UNDER, Alarm, Computed, Metric, variant_metric
from stacks.capacity.engine import gpus_used
from stacks.scaling.targets import fewest

MEMORY_PERCENT, DISK_PERCENT = 90, 85


def host_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield alarms on missing instances, and on an instance's memory and disk.

    A multi-model endpoint fills its disk with archives, and its memory where not all models fit:
    neither has an alarm there.
    """
    metric = partial(variant_metric, deployment, variant, namespace=HOST)
    alarm = partial(Alarm, variant=variant, points=5, periods=5)
    fullest = "the fullest instance's"
    if fewest(variant) > 0:
        yield alarm(
            part="NoInstances",
            kind="no-instances",
            watched=metric("MemoryUtilization", "SampleCount"),
            threshold=1,
            comparison=UNDER,
            missing="breaching",
            explanation=(
                "no instance has reported its memory for five minutes, which each in service does"
                " every minute"
            ),
        )
    if not deployment.multi_model:
        yield alarm(
            part="Disk",
            kind="disk",
            watched=metric("DiskUtilization", "Maximum"),
            threshold=DISK_PERCENT,
            explanation=f"{fullest} disk is over {DISK_PERCENT} % full",
        )
    if not fills_its_memory(deployment):
        yield alarm(
            part="HostMemory",
            kind="host-memory",
            watched=metric("MemoryUtilization", "Maximum"),
            threshold=MEMORY_PERCENT,
            explanation=f"{fullest} host memory is over {MEMORY_PERCENT} % used",
        )
        if all(pool.instance_type.is_gpu for pool in variant.pools):
            gpus = used_gpus(deployment, variant)
            several = f", of {gpus} GPUs" if gpus > 1 else ""
            yield alarm(
                part="GpuMemory",
                kind="gpu-memory",
                watched=_memory_of_one_gpu(metric("GPUMemoryUtilization", "Maximum"), gpus),
                threshold=MEMORY_PERCENT,
                explanation=f"{fullest} GPU memory is over {MEMORY_PERCENT} % used{several}",
            )


def fills_its_memory(deployment: Deployment) -> bool:
    """Whether models push each other out of memory, so that it is full whenever all is well."""
    return any(not plan.fits for plan in pool_memories(deployment) if plan.memory is not None)


def used_gpus(deployment: Deployment, variant: Variant) -> int:
    """Return how many GPUs of an instance hold the model.

    Of several instance types the most, so that no alarm trips too early.
    """
    return max(1, *(gpus_used(variant, pool.instance_type) for pool in variant.pools))


def _memory_of_one_gpu(memory: Metric, gpus: int) -> Metric | Computed:
    """The metric counts 100 for each GPU."""
    if gpus == 1:
        return memory
    label = f"memory of each of {gpus} GPUs, %"
    return Computed(expression=f"memory / {gpus}", label=label, metrics={"memory": memory})
