"""SageMaker's own model of its API, as botocore ships it: fields, types, ranges, patterns and lists of values."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from botocore.loaders import Loader

Shape = Mapping[str, Any]
OPERATIONS = (
    "CreateModel", "DescribeModel", "ListModels", "DeleteModel",
    "CreateEndpointConfig", "DescribeEndpointConfig", "ListEndpointConfigs", "DeleteEndpointConfig",
    "CreateEndpoint", "DescribeEndpoint", "ListEndpoints", "UpdateEndpoint", "UpdateEndpointWeightsAndCapacities",
    "DeleteEndpoint",
    "CreateTrainingJob", "DescribeTrainingJob", "ListTrainingJobs", "StopTrainingJob",
)  # fmt: skip
CONSTRAINTS = frozenset({"type", "min", "max", "pattern", "enum", "required", "member", "key", "value"})


@functools.cache
def shapes() -> Mapping[str, Shape]:
    """The shapes that requests of our operations are made of, by name."""
    model = Loader().load_service_model("sagemaker", "service-2")
    found: dict[str, Shape] = {}
    wanted = [input_shape(name) for name in OPERATIONS]
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _plain(model["shapes"][name])
            wanted.extend(_referred(found[name]))
    return found


def input_shape(operation: str) -> str:
    """Name of the shape of an operation's request; SageMaker has one ending for hosting and another for training jobs."""
    return f"{operation}{'Request' if 'TrainingJob' in operation else 'Input'}"


def hosting_instance_types() -> frozenset[str]:
    """Every instance type that a production variant may name."""
    return frozenset(shapes()["ProductionVariantInstanceType"]["enum"])


def _plain(shape: Shape) -> Shape:
    """A shape without its documentation."""
    members = {name: {"shape": member["shape"]} for name, member in shape.get("members", {}).items()}
    kept = {name: value for name, value in shape.items() if name in CONSTRAINTS}
    return {**kept, **({"members": members} if shape["type"] == "structure" else {})}


def _referred(shape: Shape) -> list[str]:
    inner = [shape[name]["shape"] for name in ("member", "key", "value") if name in shape]
    return [*inner, *(member["shape"] for member in shape.get("members", {}).values())]
