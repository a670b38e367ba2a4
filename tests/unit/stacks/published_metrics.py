"""Metrics that SageMaker publishes of endpoints: namespace, unit, statistics, dimensions.

Sources: SageMaker developer guide, monitoring-cloudwatch, async-inference-monitor,
serverless-endpoints-monitoring, monitoring-cloudwatch-enhanced-metrics. Checked 2026-11-21.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from onboarding.metrics import HOST, INVOCATIONS

Unit = Literal["microseconds", "seconds", "share", "percent", "gpu percent", "count"]
Kind = Literal["any", "real-time", "asynchronous", "serverless", "multi-model"]
Dimensions = tuple[tuple[str, ...], ...]

SIMPLE = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")
ANY: tuple[str, ...] = ()
COUNTED = ("Sum", "SampleCount")


@dataclass(frozen=True, kw_only=True)
class MetricFacts:
    """One metric: `dimensions` are the sets under which it is published; no `statistics` is any."""

    unit: Unit
    dimensions: Dimensions
    statistics: tuple[str, ...]
    kind: Kind

    @property
    def percentiles(self) -> bool:
        """Return True for a metric that CloudWatch keeps percentiles of."""
        return self.statistics in (ANY, COUNTED)


ENDPOINT: Dimensions = (("EndpointName",),)
VARIANT: Dimensions = (("EndpointName", "VariantName"),)
CONTAINER: Dimensions = (("EndpointName", "VariantName", "ContainerName"),)
COMPONENT: Dimensions = (("InferenceComponentName",),)
BOTH, QUEUE = VARIANT + COMPONENT, VARIANT + ENDPOINT
_ROWS: dict[str, tuple[tuple[str, Unit, Dimensions, tuple[str, ...], Kind], ...]] = {
    INVOCATIONS: (
        ("Invocations", "count", BOTH, COUNTED, "real-time"),
        ("InvocationsPerInstance", "count", VARIANT, ("Sum",), "real-time"),
        ("InvocationsPerCopy", "count", COMPONENT, ("Sum",), "any"),
        ("Invocation4XXErrors Invocation5XXErrors", "share", BOTH, SIMPLE, "any"),
        ("InvocationModelErrors", "share", BOTH, SIMPLE, "real-time"),
        ("MidStreamErrors", "share", VARIANT, SIMPLE, "real-time"),
        ("ModelLatency", "microseconds", BOTH, ANY, "any"),
        ("OverheadLatency", "microseconds", BOTH, SIMPLE, "real-time"),
        ("FirstChunkLatency FirstChunkModelLatency", "microseconds", VARIANT, ANY, "real-time"),
        ("FirstChunkOverheadLatency", "microseconds", VARIANT, ANY, "real-time"),
        ("ContainerLatency", "microseconds", CONTAINER, ANY, "any"),
        ("ConcurrentRequestsPerModel", "count", VARIANT, ANY, "real-time"),
        ("ConcurrentRequestsPerCopy", "count", COMPONENT, ANY, "any"),
        ("NoCapacityInvocationFailures", "count", BOTH, ANY, "any"),
        ("ModelSetupTime", "microseconds", VARIANT, ANY, "serverless"),
        ("ServerlessConcurrentExecutionsUtilization", "share", VARIANT, ANY, "serverless"),
        ("ServerlessProvisionedConcurrencyUtilization", "share", VARIANT, ANY, "serverless"),
        ("ServerlessProvisionedConcurrentExecutions", "count", VARIANT, ANY, "serverless"),
        ("ServerlessProvisionedConcurrencyInvocations", "count", VARIANT, ANY, "serverless"),
        (
            "ServerlessProvisionedConcurrencySpilloverInvocations",
            "count",
            VARIANT,
            ANY,
            "serverless",
        ),
        ("ModelLoadingWaitTime ModelLoadingTime", "microseconds", VARIANT, SIMPLE, "multi-model"),
        ("ModelDownloadingTime ModelUnloadingTime", "microseconds", VARIANT, SIMPLE, "multi-model"),
        ("ModelCacheHit", "share", VARIANT, SIMPLE, "multi-model"),
        (
            "ApproximateBacklogSize HasBacklogWithoutCapacity",
            "count",
            ENDPOINT,
            ANY,
            "asynchronous",
        ),
        ("ApproximateBacklogSizePerInstance", "count", ENDPOINT, ANY, "asynchronous"),
        ("ApproximateAgeOfOldestRequest", "seconds", ENDPOINT, ANY, "asynchronous"),
        ("RequestDownloadFailures ResponseUploadFailures", "count", QUEUE, ANY, "asynchronous"),
        ("NotificationFailures ExpiredRequests", "count", QUEUE, ANY, "asynchronous"),
        ("InvocationFailures InvocationsProcessed", "count", QUEUE, ANY, "asynchronous"),
        (
            "RequestDownloadLatency ResponseUploadLatency",
            "microseconds",
            QUEUE,
            ANY,
            "asynchronous",
        ),
        ("TimeInBacklog TotalProcessingTime", "microseconds", QUEUE, ANY, "asynchronous"),
    ),
    HOST: (
        ("CPUUtilization", "count", VARIANT, ANY, "any"),
        ("MemoryUtilization DiskUtilization", "percent", VARIANT, ANY, "any"),
        ("GPUUtilization GPUMemoryUtilization", "gpu percent", VARIANT, ANY, "any"),
        ("LoadedModelCount", "count", VARIANT, ANY, "multi-model"),
        ("CPUUtilizationNormalized MemoryUtilizationNormalized", "percent", VARIANT, ANY, "any"),
        ("GPUUtilizationNormalized GPUMemoryUtilizationNormalized", "percent", VARIANT, ANY, "any"),
        ("CPUReservation MemoryReservation", "percent", VARIANT, ANY, "any"),
        ("GPUReservation GPUMemoryReservation", "percent", VARIANT, ANY, "any"),
    ),
}
"""By namespace: metrics, unit, dimensions, statistics, kind of endpoint."""
METRICS: dict[str, dict[str, MetricFacts]] = {
    namespace: {
        metric: MetricFacts(unit=unit, dimensions=dimensions, statistics=statistics, kind=kind)
        for metrics, unit, dimensions, statistics, kind in rows
        for metric in metrics.split()
    }
    for namespace, rows in _ROWS.items()
}
"""By namespace, then by name."""


def metric_facts(namespace: str, metric: str) -> MetricFacts | None:
    """Return what is known of a metric; None for one that SageMaker does not publish there."""
    return METRICS.get(namespace, {}).get(metric)
