"""Metrics that SageMaker publishes: unit, statistics, dimensions. Source: SageMaker docs
monitoring-cloudwatch,
async-inference-monitor, serverless-endpoints-monitoring, monitoring-cloudwatch-enhanced-metrics.
Checked 2026-11-21."""

from dataclasses import dataclass
from typing import Literal

Unit = Literal["microseconds", "seconds", "share", "percent", "gpu percent", "count"]
INVOCATIONS, HOST, COMPONENTS = (
    "AWS/SageMaker",
    "/aws/sagemaker/Endpoints",
    "/aws/sagemaker/InferenceComponents",
)
VARIANT = ("EndpointName", "VariantName")
ENDPOINT = ("EndpointName",)
COMPONENT = ("InferenceComponentName",)
ENHANCED = frozenset({"InstanceId", "ContainerId", "AcceleratorId"})
"""Dimensions of metrics that only an endpoint with `MetricsConfig.EnableEnhancedMetrics` publishes.
"""
FURTHER = frozenset(
    {
        *ENHANCED,
        "ContainerName",
        "Region",
        "AvailabilityZone",
        "InstanceType",
        "InferenceComponentName",
    }
)
"""Dimensions that may stand beside those of a variant or a component."""


@dataclass(frozen=True, kw_only=True)
class MetricFacts:
    """One metric: `dimensions` are the sets under which it is published; no `statistics` is any."""

    unit: Unit
    dimensions: tuple[tuple[str, ...], ...]
    statistics: tuple[str, ...] = ()
    percentiles: bool = True
    kind: Literal["any", "real-time", "asynchronous", "serverless", "multi-model"] = "any"


def _facts(names: str, **fields: object) -> dict[str, MetricFacts]:
    return {name: MetricFacts(**fields) for name in names.split()}  # type: ignore[arg-type]


BOTH = (VARIANT, COMPONENT)
SIMPLE = ("Average", "Sum", "Minimum", "Maximum", "SampleCount")

_INVOCATIONS = {
    **_facts(
        "Invocations",
        unit="count",
        dimensions=BOTH,
        statistics=("Sum", "SampleCount"),
        kind="real-time",
    ),
    **_facts(
        "InvocationsPerInstance",
        unit="count",
        dimensions=(VARIANT,),
        statistics=("Sum",),
        percentiles=False,
        kind="real-time",
    ),
    **_facts(
        "InvocationsPerCopy",
        unit="count",
        dimensions=(COMPONENT,),
        statistics=("Sum",),
        percentiles=False,
    ),
    **_facts(
        "Invocation4XXErrors Invocation5XXErrors",
        unit="share",
        dimensions=BOTH,
        statistics=SIMPLE,
        percentiles=False,
    ),
    **_facts(
        "InvocationModelErrors",
        unit="share",
        dimensions=BOTH,
        statistics=SIMPLE,
        percentiles=False,
        kind="real-time",
    ),
    **_facts(
        "MidStreamErrors",
        unit="share",
        dimensions=(VARIANT,),
        statistics=SIMPLE,
        percentiles=False,
        kind="real-time",
    ),
    **_facts("ModelLatency", unit="microseconds", dimensions=BOTH),
    **_facts(
        "OverheadLatency",
        unit="microseconds",
        dimensions=BOTH,
        statistics=SIMPLE,
        percentiles=False,
        kind="real-time",
    ),
    **_facts(
        "FirstChunkLatency FirstChunkModelLatency FirstChunkOverheadLatency",
        unit="microseconds",
        dimensions=(VARIANT,),
        kind="real-time",
    ),
    **_facts("ContainerLatency", unit="microseconds", dimensions=((*VARIANT, "ContainerName"),)),
    **_facts("ConcurrentRequestsPerModel", unit="count", dimensions=(VARIANT,), kind="real-time"),
    **_facts("ConcurrentRequestsPerCopy", unit="count", dimensions=(COMPONENT,)),
    **_facts("NoCapacityInvocationFailures", unit="count", dimensions=BOTH),
    **_facts("ModelSetupTime", unit="microseconds", dimensions=(VARIANT,), kind="serverless"),
    **_facts(
        "ServerlessConcurrentExecutionsUtilization ServerlessProvisionedConcurrencyUtilization",
        unit="share",
        dimensions=(VARIANT,),
        kind="serverless",
    ),
    **_facts(
        "ServerlessProvisionedConcurrentExecutions ServerlessProvisionedConcurrencyInvocations "
        "ServerlessProvisionedConcurrencySpilloverInvocations",
        unit="count",
        dimensions=(VARIANT,),
        kind="serverless",
    ),
    **_facts(
        "ModelLoadingWaitTime ModelUnloadingTime ModelDownloadingTime ModelLoadingTime",
        unit="microseconds",
        dimensions=(VARIANT,),
        statistics=SIMPLE,
        percentiles=False,
        kind="multi-model",
    ),
    **_facts(
        "ModelCacheHit",
        unit="share",
        dimensions=(VARIANT,),
        statistics=SIMPLE,
        percentiles=False,
        kind="multi-model",
    ),
    **_facts(
        "ApproximateBacklogSize ApproximateBacklogSizePerInstance HasBacklogWithoutCapacity",
        unit="count",
        dimensions=(ENDPOINT,),
        kind="asynchronous",
    ),
    **_facts(
        "ApproximateAgeOfOldestRequest", unit="seconds", dimensions=(ENDPOINT,), kind="asynchronous"
    ),
    **_facts(
        "RequestDownloadFailures ResponseUploadFailures NotificationFailures ExpiredRequests InvocationFailures "
        "InvocationsProcessed",
        unit="count",
        dimensions=(VARIANT, ENDPOINT),
        kind="asynchronous",
    ),
    **_facts(
        "RequestDownloadLatency ResponseUploadLatency TimeInBacklog TotalProcessingTime",
        unit="microseconds",
        dimensions=(VARIANT, ENDPOINT),
        kind="asynchronous",
    ),
}
_HOST = {
    **_facts("CPUUtilization", unit="count", dimensions=(VARIANT,)),
    **_facts("MemoryUtilization DiskUtilization", unit="percent", dimensions=(VARIANT,)),
    **_facts("GPUUtilization GPUMemoryUtilization", unit="gpu percent", dimensions=(VARIANT,)),
    **_facts("LoadedModelCount", unit="count", dimensions=(VARIANT,), kind="multi-model"),
    **_facts(
        "CPUUtilizationNormalized MemoryUtilizationNormalized GPUUtilizationNormalized GPUMemoryUtilizationNormalized "
        "CPUReservation MemoryReservation GPUReservation GPUMemoryReservation",
        unit="percent",
        dimensions=(VARIANT,),
    ),
}
_COMPONENTS = _facts(
    "CPUUtilization MemoryUtilization GPUUtilization GPUMemoryUtilization CPUUtilizationNormalized MemoryUtilizationNormalized "
    "GPUUtilizationNormalized GPUMemoryUtilizationNormalized",
    unit="count",
    dimensions=(COMPONENT,),
)
METRICS: dict[str, dict[str, MetricFacts]] = {
    INVOCATIONS: _INVOCATIONS,
    HOST: _HOST,
    COMPONENTS: _COMPONENTS,
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
    """What is known of a metric; None for one that SageMaker does not publish there."""
    return METRICS.get(namespace, {}).get(metric)
