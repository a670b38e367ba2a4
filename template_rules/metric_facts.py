"""Metrics that SageMaker publishes: unit, statistics, dimensions.

Sources: SageMaker developer guide, monitoring-cloudwatch, async-inference-monitor,
serverless-endpoints-monitoring, monitoring-cloudwatch-enhanced-metrics. Checked 2026-11-21.
"""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["microseconds", "seconds", "share", "percent", "gpu percent", "count"]
Kind = Literal["any", "real-time", "asynchronous", "serverless", "multi-model"]
INVOCATIONS, HOST, COMPONENTS = (
    "AWS/SageMaker",
    "/aws/sagemaker/Endpoints",
    "/aws/sagemaker/InferenceComponents",
)
VARIANT = ("EndpointName", "VariantName")
ENDPOINT = ("EndpointName",)
COMPONENT = ("InferenceComponentName",)
ENHANCED = frozenset({"InstanceId", "ContainerId", "AcceleratorId"})
"""Dimensions of metrics that need `MetricsConfig.EnableEnhancedMetrics`."""
FURTHER = ENHANCED | {
    "ContainerName",
    "Region",
    "AvailabilityZone",
    "InstanceType",
    "InferenceComponentName",
}
"""Dimensions that may stand beside those of a variant or a component."""


@dataclass(frozen=True, kw_only=True)
class MetricFacts:
    """One metric: `dimensions` are the sets under which it is published; no `statistics` is any."""

    unit: Unit
    dimensions: tuple[tuple[str, ...], ...]
    statistics: tuple[str, ...] = ()
    percentiles: bool = True
    kind: Kind = "any"


BOTH = (VARIANT, COMPONENT)
SIMPLE = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")
SUM = ("Sum",)
Row = tuple[str, str, Unit, tuple[tuple[str, ...], ...], tuple[str, ...] | None, Kind]
_ROWS: tuple[Row, ...] = (
    (INVOCATIONS, "Invocations", "count", BOTH, (), "real-time"),
    (INVOCATIONS, "InvocationsPerInstance", "count", (VARIANT,), SUM, "real-time"),
    (INVOCATIONS, "InvocationsPerCopy", "count", (COMPONENT,), SUM, "any"),
    (INVOCATIONS, "Invocation4XXErrors Invocation5XXErrors", "share", BOTH, SIMPLE, "any"),
    (INVOCATIONS, "InvocationModelErrors", "share", BOTH, SIMPLE, "real-time"),
    (INVOCATIONS, "MidStreamErrors", "share", (VARIANT,), SIMPLE, "real-time"),
    (INVOCATIONS, "ModelLatency", "microseconds", BOTH, None, "any"),
    (INVOCATIONS, "OverheadLatency", "microseconds", BOTH, SIMPLE, "real-time"),
    (
        INVOCATIONS,
        "FirstChunkLatency FirstChunkModelLatency FirstChunkOverheadLatency",
        "microseconds",
        (VARIANT,),
        None,
        "real-time",
    ),
    (
        INVOCATIONS,
        "ContainerLatency",
        "microseconds",
        ((*VARIANT, "ContainerName"),),
        None,
        "any",
    ),
    (INVOCATIONS, "ConcurrentRequestsPerModel", "count", (VARIANT,), None, "real-time"),
    (INVOCATIONS, "ConcurrentRequestsPerCopy", "count", (COMPONENT,), None, "any"),
    (INVOCATIONS, "NoCapacityInvocationFailures", "count", BOTH, None, "any"),
    (INVOCATIONS, "ModelSetupTime", "microseconds", (VARIANT,), None, "serverless"),
    (
        INVOCATIONS,
        "ServerlessConcurrentExecutionsUtilization ServerlessProvisionedConcurrencyUtilization",
        "share",
        (VARIANT,),
        None,
        "serverless",
    ),
    (
        INVOCATIONS,
        "ServerlessProvisionedConcurrentExecutions ServerlessProvisionedConcurrencyInvocations "
        "ServerlessProvisionedConcurrencySpilloverInvocations",
        "count",
        (VARIANT,),
        None,
        "serverless",
    ),
    (
        INVOCATIONS,
        "ModelLoadingWaitTime ModelUnloadingTime ModelDownloadingTime ModelLoadingTime",
        "microseconds",
        (VARIANT,),
        SIMPLE,
        "multi-model",
    ),
    (INVOCATIONS, "ModelCacheHit", "share", (VARIANT,), SIMPLE, "multi-model"),
    (
        INVOCATIONS,
        "ApproximateBacklogSize ApproximateBacklogSizePerInstance HasBacklogWithoutCapacity",
        "count",
        (ENDPOINT,),
        None,
        "asynchronous",
    ),
    (INVOCATIONS, "ApproximateAgeOfOldestRequest", "seconds", (ENDPOINT,), None, "asynchronous"),
    (
        INVOCATIONS,
        "RequestDownloadFailures ResponseUploadFailures NotificationFailures ExpiredRequests "
        "InvocationFailures InvocationsProcessed",
        "count",
        (VARIANT, ENDPOINT),
        None,
        "asynchronous",
    ),
    (
        INVOCATIONS,
        "RequestDownloadLatency ResponseUploadLatency TimeInBacklog TotalProcessingTime",
        "microseconds",
        (VARIANT, ENDPOINT),
        None,
        "asynchronous",
    ),
    (HOST, "CPUUtilization", "count", (VARIANT,), None, "any"),
    (HOST, "MemoryUtilization DiskUtilization", "percent", (VARIANT,), None, "any"),
    (HOST, "GPUUtilization GPUMemoryUtilization", "gpu percent", (VARIANT,), None, "any"),
    (HOST, "LoadedModelCount", "count", (VARIANT,), None, "multi-model"),
    (
        HOST,
        "CPUUtilizationNormalized MemoryUtilizationNormalized GPUUtilizationNormalized "
        "GPUMemoryUtilizationNormalized CPUReservation MemoryReservation GPUReservation "
        "GPUMemoryReservation",
        "percent",
        (VARIANT,),
        None,
        "any",
    ),
    (
        COMPONENTS,
        "CPUUtilization MemoryUtilization GPUUtilization GPUMemoryUtilization "
        "CPUUtilizationNormalized MemoryUtilizationNormalized GPUUtilizationNormalized "
        "GPUMemoryUtilizationNormalized",
        "count",
        (COMPONENT,),
        None,
        "any",
    ),
)
"""Namespace, metrics, unit, dimensions, statistics, kind of endpoint.

Statistics without percentiles are named; None is any; () of Invocations is Sum and SampleCount.
"""


def _facts(row: Row) -> MetricFacts:
    _, _, unit, dimensions, statistics, kind = row
    named = ("Sum", "SampleCount") if statistics == () else statistics
    return MetricFacts(
        unit=unit,
        dimensions=dimensions,
        statistics=named or (),
        percentiles=not statistics,
        kind=kind,
    )


METRICS: dict[str, dict[str, MetricFacts]] = {
    namespace: {
        metric: _facts(row) for row in _ROWS if row[0] == namespace for metric in row[1].split()
    }
    for namespace in (INVOCATIONS, HOST, COMPONENTS)
}
OTHER_NAMESPACES = (
    "/aws/sagemaker/TrainingJobs",
    "/aws/sagemaker/ProcessingJobs",
    "/aws/sagemaker/TransformJobs",
    "/aws/sagemaker/InferenceRecommendationsJobs",
    "/aws/sagemaker/LabelingJobs",
    "AWS/SageMaker/Workteam",
    "AWS/Sagemaker/ModelBuildingPipeline",
    "AWS/SageMaker/FeatureStore",
    "/aws/sagemaker/Clusters",
)
"""Namespaces of SageMaker whose metrics are not an endpoint's."""


def metric_facts(namespace: str, metric: str) -> MetricFacts | None:
    """Return what is known of a metric; None for one that SageMaker does not publish there."""
    return METRICS.get(namespace, {}).get(metric)
