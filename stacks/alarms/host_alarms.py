"""Alarms on instances: that there are any, and what they have left."""

from __future__ import annotations

import math
from collections.abc import Iterator

from onboarding.deployment import Deployment, Variant
from onboarding.memory import fewest_resident, pool_memories
from onboarding.metrics import AT_LEAST, UNDER, Alarm, Metric, MetricMath
from stacks.alarms.alarm import Subject, percent
from stacks.capacity.engine import gpus_used
from stacks.rollout import ready_seconds
from stacks.scaling import SECONDS_A_MINUTE

MEMORY_PERCENT, DISK_PERCENT = 90, 85
CACHE_PERIOD, LASTING = 300, 3
LEAST_REQUESTS = 50
"""Requests in five minutes, below which a share says nothing."""


def host_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield alarms on missing instances, and on an instance's memory and disk.

    A multi-model endpoint fills its disk with archives, and its memory where not all models fit:
    neither has an alarm there.
    """
    subject = Subject(deployment, variant.name)
    if variant.scaling.fewest > 0:
        explanation = (
            "no instance has reported its memory for five minutes, which each in service does every"
            " minute"
        )
        yield no_instances(subject, explanation)
    if deployment.is_component:
        yield no_capacity(subject, ready_seconds(deployment, variant))
    full = []
    if not deployment.multi_model:
        full.append(("disk", "DiskUtilization", "disk", DISK_PERCENT, "full"))
    if not fills_its_memory(deployment):
        full.append(("host-memory", "MemoryUtilization", "host memory", MEMORY_PERCENT, "used"))
    for kind, name, noun, limit, state in full:
        watched = subject.metrics.host(name, "Maximum")
        explanation = f"the fullest instance's {noun} is over {limit} % {state}"
        yield subject.alarm(kind, watched, explanation, threshold=limit, points=5)
    if not fills_its_memory(deployment) and all(
        pool.instance_type.is_gpu for pool in variant.pools
    ):
        gpus = used_gpus(deployment, variant)
        several = f", of {gpus} GPUs" if gpus > 1 else ""
        memory = subject.metrics.host("GPUMemoryUtilization", "Maximum")
        yield subject.alarm(
            "gpu-memory",
            _memory_of_one_gpu(memory, gpus),
            f"the fullest instance's GPU memory is over {MEMORY_PERCENT} % used{several}",
            threshold=MEMORY_PERCENT,
            points=5,
        )


def no_instances(subject: Subject, explanation: str) -> Alarm:
    """Return the alarm that no instance reports; each reports its memory once a minute."""
    watched = subject.metrics.host("MemoryUtilization", "SampleCount")
    return subject.alarm(
        "no-instances",
        watched,
        explanation,
        threshold=1,
        comparison=UNDER,
        points=5,
        missing="breaching",
    )


def no_capacity(subject: Subject, seconds: int) -> Alarm:
    """Return the alarm that requests find no copy of an inference component for so long."""
    minutes = math.ceil(seconds / SECONDS_A_MINUTE)
    return subject.alarm(
        "no-capacity",
        subject.metrics.component("NoCapacityInvocationFailures", "Sum"),
        f"requests found no copy for {minutes} minutes",
        threshold=1,
        comparison=AT_LEAST,
        points=minutes,
        periods=minutes,
    )


def fills_its_memory(deployment: Deployment) -> bool:
    """Whether models push each other out of memory, so that it is full whenever all is well."""
    return any(not plan.fits for plan in pool_memories(deployment) if plan.memory is not None)


def used_gpus(deployment: Deployment, variant: Variant) -> int:
    """Return how many GPUs of an instance hold the model.

    Of several instance types the most, so that no alarm trips too early.
    """
    return max(1, *(gpus_used(variant, pool.instance_type) for pool in variant.pools))


def _memory_of_one_gpu(memory: Metric, gpus: int) -> Metric | MetricMath:
    """The metric counts 100 for each GPU."""
    if gpus == 1:
        return memory
    label = f"memory of each of {gpus} GPUs, %"
    return MetricMath(expression=f"memory / {gpus}", label=label, metrics={"memory": memory})


def cache_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield none for an endpoint of one model."""
    if not deployment.multi_model:
        return
    subject = Subject(deployment, variant.name)
    hits, requests = (
        subject.metrics.invocations("ModelCacheHit", statistic, CACHE_PERIOD)
        for statistic in ("Average", "SampleCount")
    )
    expected = expected_hits(deployment)
    yield subject.alarm(
        "cache-hits",
        MetricMath(
            expression=f"IF(requests >= {LEAST_REQUESTS}, hits, 1)",
            label="cache hits, share",
            metrics={"hits": hits, "requests": requests},
        ),
        f"fewer than {percent(expected / 2)} of the requests find their model in memory: half of"
        f" the {percent(expected)} of the models that fit, whichever they are, by what the locks"
        " measured",
        threshold=expected / 2,
        comparison=UNDER,
        points=LASTING,
        periods=LASTING,
    )


def expected_hits(deployment: Deployment) -> float:
    """Lowest share of evenly spread requests whose model is in memory, by the locks' sizes."""
    plans = [plan for plan in pool_memories(deployment) if plan.models and plan.memory is not None]
    return min(
        [fewest_resident(plan.models, plan.capacity_mib) / len(plan.models) for plan in plans],
        default=1.0,
    )
