"""Alarms on instances: that there are any, what they have left, and what DCGM says of each GPU.

SageMaker's detailed observability publishes DCGM's metrics by OpenTelemetry, so that PromQL alone
reads them. Sources: SageMaker developer guide, inference-monitoring (labels);
CloudWatch user guide, alarm-promql; NVIDIA dcgm-exporter, default-counters.csv (names).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from onboarding import arns, names
from onboarding.deployment import VARIANT, DeployedEndpoint, Deployment, Variant
from onboarding.memory import fewest_resident, pool_memories
from onboarding.metrics import HOST
from stacks.alarms.alarm import (
    MICROSECONDS_A_SECOND,
    UNDER,
    Alarm,
    Computed,
    Metric,
    alarm_name,
    percent,
    variant_metric,
)
from stacks.capacity.engine import gpus_used
from stacks.rollout import DOWNLOAD_MIB_PER_SECOND, locked_entries
from stacks.scaling.targets import fewest, variant_id

MEMORY_PERCENT, DISK_PERCENT = 90, 85
CACHE_PERIOD, LASTING = 300, 3
LEAST_REQUESTS = 50
"""Requests in five minutes, below which a share says nothing."""
LONGEST_SECONDS = 60
"""SageMaker waits no longer for an answer."""
EVALUATION_SECONDS, PENDING_SECONDS, RECOVERY_SECONDS = 60, 180, 300
"""How often the query runs, and how long a GPU is over or under its limit until the state moves."""


def host_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield alarms on missing instances, and on an instance's memory and disk.

    A multi-model endpoint fills its disk with archives, and its memory where not all models fit:
    neither has an alarm there.
    """
    metric = partial(variant_metric, deployment, variant.name, namespace=HOST)
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


def cache_alarms(deployment: Deployment, variant: Variant) -> Iterator[Alarm]:
    """Yield none for an endpoint of one model."""
    if not deployment.multi_model:
        return
    metric = partial(variant_metric, deployment, variant.name, period=CACHE_PERIOD)
    expected = expected_hits(deployment)
    yield Alarm(
        part="CacheHits",
        kind="cache-hits",
        variant=variant,
        watched=Computed(
            expression=f"IF(requests >= {LEAST_REQUESTS}, hits, 1)",
            label="cache hits, share",
            metrics={
                "hits": metric("ModelCacheHit", "Average"),
                "requests": metric("ModelCacheHit", "SampleCount"),
            },
        ),
        threshold=expected / 2,
        comparison=UNDER,
        points=LASTING,
        periods=LASTING,
        explanation=(
            f"fewer than {percent(expected / 2)} of the requests find their model in memory: half"
            f" of the {percent(expected)} of the models that fit, whichever they are, by what the"
            " locks measured"
        ),
    )
    slowest = slowest_load_seconds(variant)
    if slowest is not None:
        limit = min(LONGEST_SECONDS, round(2 * slowest, 1))
        yield Alarm(
            part="LoadingWait",
            kind="loading-wait",
            variant=variant,
            watched=metric("ModelLoadingWaitTime", "Average"),
            threshold=limit * MICROSECONDS_A_SECOND,
            points=LASTING,
            periods=LASTING,
            explanation=(
                f"a request whose model is not in memory waits over {limit:g} s: twice what the"
                f" slowest takes, {slowest:.3g} s"
            ),
        )


def expected_hits(deployment: Deployment) -> float:
    """Lowest share of evenly spread requests whose model is in memory, by the locks' sizes."""
    plans = [plan for plan in pool_memories(deployment) if plan.models and plan.memory is not None]
    return min(
        [fewest_resident(plan.models, plan.capacity_mib) / len(plan.models) for plan in plans],
        default=1.0,
    )


def slowest_load_seconds(variant: Variant) -> float | None:
    """Download at 20 MiB/s and measured load of the slowest model; None when none is built."""
    seconds = [
        entry.archive.size_bytes / 2**20 / DOWNLOAD_MIB_PER_SECOND + entry.manifest.load_seconds
        for entry in locked_entries(variant)
    ]
    return max(seconds, default=None)


def gpu_alarms(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """Return an `AWS::CloudWatch::Alarm` for each limit of each variant, by logical id.

    Each GPU over its limit is a contributor of the alarm.
    """
    metrics = deployment.endpoint.metrics
    limits = {} if metrics is None else metrics.gpu_limits
    return {
        variant_id(variant, field.title().replace("_", "")): _properties(
            deployment, variant, field, limit
        )
        for variant in deployment.variants
        for field, limit in limits.items()
    }


def _properties(
    deployment: Deployment, variant: Variant, field: str, limit: float
) -> dict[str, Any]:
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    subject = endpoint if variant.name == VARIANT else f"{endpoint}, {variant.name}"
    labels = {"aws.sagemaker.endpoint.name": endpoint, "aws.sagemaker.variant.name": variant.name}
    matchers = ", ".join(f'"{label}"="{value}"' for label, value in labels.items())
    return query_alarm(
        deployment,
        alarm_name(deployment, field.lower().replace("_", "-"), variant),
        f"{subject}: {field} of a GPU is over {limit:g}",
        f'{{"{field}", {matchers}}} > {limit:.10g}',
    )


def query_alarm(
    deployment: DeployedEndpoint, name: str, description: str, query: str
) -> dict[str, Any]:
    """Return an `AWS::CloudWatch::Alarm` on whatever a PromQL query returns."""
    return {
        "AlarmName": name,
        "AlarmDescription": description,
        "EvaluationCriteria": {
            "PromQLCriteria": {
                "Query": query,
                "PendingPeriod": PENDING_SECONDS,
                "RecoveryPeriod": RECOVERY_SECONDS,
            }
        },
        "EvaluationInterval": EVALUATION_SECONDS,
        "AlarmActions": [arns.alarm_topic(deployment.environment)],
    }
