"""Constructs of endpoints that TensorRT engines and text generators answer behind."""

from roundhouse_cdk.endpoint_alarms import EndpointAlarms, EndpointAlarmsProps
from roundhouse_cdk.endpoint_dashboard import EndpointDashboard, EndpointDashboardProps
from roundhouse_cdk.endpoint_scaling import EndpointScaling, EndpointScalingProps
from roundhouse_cdk.metric_enrichment import MetricEnrichment

__all__ = [
    "EndpointAlarms",
    "EndpointAlarmsProps",
    "EndpointDashboard",
    "EndpointDashboardProps",
    "EndpointScaling",
    "EndpointScalingProps",
    "MetricEnrichment",
]
