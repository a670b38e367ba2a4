"""Constructs of endpoints that TensorRT engines and text generators answer behind."""

from roundhouse_cdk.endpoint_alarms import EndpointAlarms, EndpointAlarmsProps

__all__ = ["EndpointAlarms", "EndpointAlarmsProps"]
