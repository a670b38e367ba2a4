"""AWS's own models of its APIs, as botocore ships them: fields, types, ranges, patterns and lists
of values.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.loaders import Loader

Shape = Mapping[str, Any]
SAGEMAKER, RUNTIME, SCALING = "sagemaker", "sagemaker-runtime", "application-autoscaling"
SAGEMAKER_OPERATIONS = (
    "CreateModel", "DescribeModel", "ListModels", "DeleteModel",
    "CreateEndpointConfig", "DescribeEndpointConfig", "ListEndpointConfigs", "DeleteEndpointConfig",
    "CreateEndpoint", "DescribeEndpoint", "ListEndpoints", "UpdateEndpoint", "UpdateEndpointWeightsAndCapacities",
    "DeleteEndpoint",
    "CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob",
    "AddTags", "ListTags", "DeleteTags",
)  # fmt: skip
SCALING_OPERATIONS = (
    "RegisterScalableTarget", "DescribeScalableTargets", "DeregisterScalableTarget",
    "PutScalingPolicy", "DescribeScalingPolicies", "DeleteScalingPolicy",
    "PutScheduledAction", "DescribeScheduledActions", "DeleteScheduledAction", "DescribeScalingActivities",
)  # fmt: skip
OPERATIONS: Mapping[str, tuple[str, ...]] = {
    SAGEMAKER: SAGEMAKER_OPERATIONS,
    RUNTIME: ("InvokeEndpoint", "InvokeEndpointAsync"),
    SCALING: SCALING_OPERATIONS,
}
"""The operations of each service that are answered here."""
CONSTRAINTS = frozenset(
    {"type", "min", "max", "pattern", "enum", "required", "member", "key", "value"}
)


@dataclass(frozen=True, kw_only=True)
class ApiModel:
    """One service's part that is answered here: shapes by name, each operation's request shape, and
    its headers by field.
    """

    shapes: Mapping[str, Shape]
    inputs: Mapping[str, str]
    headers: Mapping[str, Mapping[str, str]]


@functools.cache
def api_model(service: str) -> ApiModel:
    """The model of a service, without what is not answered here."""
    model = Loader().load_service_model(service, "service-2")
    inputs = {
        name: str(model["operations"][name]["input"]["shape"]) for name in OPERATIONS[service]
    }
    headers = {name: _headers(model["shapes"][shape]) for name, shape in inputs.items()}
    return ApiModel(
        shapes=_reached(model["shapes"], tuple(inputs.values())), inputs=inputs, headers=headers
    )


def shapes(service: str = SAGEMAKER) -> Mapping[str, Shape]:
    """The shapes that requests of a service's operations are made of, by name."""
    return api_model(service).shapes


def _headers(shape: Shape) -> Mapping[str, str]:
    """The members of a request that travel in headers, whose names are in lower case here."""
    sent = {
        name: member
        for name, member in shape["members"].items()
        if member.get("location") == "header"
    }
    return {name: str(member["locationName"]).lower() for name, member in sent.items()}


def _reached(every: Mapping[str, Shape], begin: tuple[str, ...]) -> Mapping[str, Shape]:
    """The shapes that some shapes are made of, and those themselves."""
    found: dict[str, Shape] = {}
    wanted = list(begin)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _plain(every[name])
            wanted.extend(_referred(found[name]))
    return found


def hosting_instance_types() -> frozenset[str]:
    """Every instance type that a production variant may name."""
    return frozenset(shapes()["ProductionVariantInstanceType"]["enum"])


def _plain(shape: Shape) -> Shape:
    """A shape without its documentation."""
    members = {
        name: {"shape": member["shape"]} for name, member in shape.get("members", {}).items()
    }
    kept = {name: value for name, value in shape.items() if name in CONSTRAINTS}
    return {**kept, **({"members": members} if shape["type"] == "structure" else {})}


def _referred(shape: Shape) -> list[str]:
    inner = [shape[name]["shape"] for name in ("member", "key", "value") if name in shape]
    return [*inner, *(member["shape"] for member in shape.get("members", {}).values())]
