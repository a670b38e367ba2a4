"""The environment's dashboard as plain data: one endpoint at a time, chosen by a selector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from stacks.capacity import instance_capacity

INVOCATIONS, HOST = "AWS/SageMaker", "/aws/sagemaker/Endpoints"
WIDTH, HEIGHT = 12, 6

Annotation = dict[str, Any]


def dashboard_body(deployments: Sequence[Deployment]) -> dict[str, Any]:
    """Latency, load, errors, host and multi-model caching, with each SLO and measured capacity as a line."""
    endpoints = [names.endpoint_name(each.environment, each.name) for each in deployments]
    region = deployments[0].environment.region
    widgets = [
        _widget(region, "Model latency, ms", _latencies(endpoints[0]), _slo_lines(deployments)),
        _widget(
            region,
            "Invocations an instance, a minute",
            [_metric(INVOCATIONS, "InvocationsPerInstance", endpoints[0], "Sum")],
            _capacity_lines(deployments),
        ),
        _widget(region, "Errors, share", [_metric(INVOCATIONS, name, endpoints[0], "Average") for name in _ERROR_METRICS]),
        _widget(region, "Utilization, % (100 a GPU)", [_metric(HOST, name, endpoints[0], "Average") for name in _HOST_METRICS]),
        _widget(
            region,
            "Multi-model: cache hits (share), loaded models",
            [
                _metric(INVOCATIONS, "ModelCacheHit", endpoints[0], "Average"),
                _metric(HOST, "LoadedModelCount", endpoints[0], "Average"),
            ],
        ),
    ]
    return {"variables": [_selector(endpoints)], "widgets": [_placed(widget, index) for index, widget in enumerate(widgets)]}


_ERROR_METRICS = ("Invocation4XXErrors", "Invocation5XXErrors")
_HOST_METRICS = ("CPUUtilization", "MemoryUtilization", "GPUUtilization", "GPUMemoryUtilization")


def _selector(endpoints: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "property",
        "property": "EndpointName",
        "id": "endpoint",
        "label": "Endpoint",
        "inputType": "select",
        "visible": True,
        "defaultValue": endpoints[0],
        "values": [{"label": name, "value": name} for name in endpoints],
    }


def _latencies(endpoint: str) -> list[list[Any]]:
    """The metric is in microseconds."""
    shown: list[list[Any]] = []
    for statistic in ("p50", "p95", "p99"):
        hidden = {"id": f"{statistic}_us", "stat": statistic, "visible": False}
        shown.append([INVOCATIONS, "ModelLatency", "EndpointName", endpoint, "VariantName", VARIANT, hidden])
        shown.append([{"expression": f"{statistic}_us / 1000", "label": statistic, "id": statistic}])
    return shown


def _metric(namespace: str, name: str, endpoint: str, statistic: str) -> list[Any]:
    return [namespace, name, "EndpointName", endpoint, "VariantName", VARIANT, {"stat": statistic}]


def _slo_lines(deployments: Sequence[Deployment]) -> list[Annotation]:
    return [
        {"label": f"SLO of {each.name}", "value": each.endpoint.latency_slo_ms}
        for each in deployments
        if each.endpoint.latency_slo_ms is not None
    ]


def _capacity_lines(deployments: Sequence[Deployment]) -> list[Annotation]:
    capacities = [(each.name, instance_capacity(each)) for each in deployments]
    return [
        {"label": f"measured capacity of {name}", "value": round(capacity.requests_per_second * 60, 1)}
        for name, capacity in capacities
        if capacity is not None
    ]


def _widget(region: str, title: str, metrics: list[list[Any]], lines: Sequence[Annotation] = ()) -> dict[str, Any]:
    properties: dict[str, Any] = {"title": title, "region": region, "view": "timeSeries", "period": 60, "metrics": metrics}
    if lines:
        properties["annotations"] = {"horizontal": list(lines)}
    return {"type": "metric", "width": WIDTH, "height": HEIGHT, "properties": properties}


def _placed(widget: dict[str, Any], index: int) -> dict[str, Any]:
    return {**widget, "x": WIDTH * (index % 2), "y": HEIGHT * (index // 2)}
