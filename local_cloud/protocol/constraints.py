"""AWS's own models of its APIs, as botocore ships them.

Fields, types, ranges, patterns and lists of values.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.loaders import Loader

from local_cloud.protocol.errors import AwsError, validation_error

Shape = Mapping[str, Any]
SAGEMAKER, RUNTIME, SCALING = "sagemaker", "sagemaker-runtime", "application-autoscaling"
SAGEMAKER_OPERATIONS = (
    "CreateModel",
    "DescribeModel",
    "ListModels",
    "DeleteModel",
    "CreateEndpointConfig",
    "DescribeEndpointConfig",
    "ListEndpointConfigs",
    "DeleteEndpointConfig",
    "CreateEndpoint",
    "DescribeEndpoint",
    "ListEndpoints",
    "UpdateEndpoint",
    "UpdateEndpointWeightsAndCapacities",
    "DeleteEndpoint",
    "CreateTrainingJob",
    "DescribeTrainingJob",
    "ListTrainingJobs",
    "StopTrainingJob",
    "AddTags",
    "ListTags",
    "DeleteTags",
)
SCALING_OPERATIONS = (
    "RegisterScalableTarget",
    "DescribeScalableTargets",
    "DeregisterScalableTarget",
    "PutScalingPolicy",
    "DescribeScalingPolicies",
    "DeleteScalingPolicy",
    "PutScheduledAction",
    "DescribeScheduledActions",
    "DeleteScheduledAction",
    "DescribeScalingActivities",
)
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
    """One service's part that is answered here.

    Shapes by name, each operation's request shape, and its headers by field.
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
        shapes=_reachable_shapes(model["shapes"], tuple(inputs.values())),
        inputs=inputs,
        headers=headers,
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


def _reachable_shapes(every: Mapping[str, Shape], begin: tuple[str, ...]) -> Mapping[str, Shape]:
    """The shapes that some shapes are made of, and those themselves."""
    found: dict[str, Shape] = {}
    wanted = list(begin)
    while wanted:
        name = wanted.pop()
        if name not in found:
            found[name] = _plain(every[name])
            wanted.extend(_referenced_shapes(found[name]))
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


def _referenced_shapes(shape: Shape) -> list[str]:
    inner = [shape[name]["shape"] for name in ("member", "key", "value") if name in shape]
    return [*inner, *(member["shape"] for member in shape.get("members", {}).values())]


Request = Mapping[str, Any]
NUMBERS = ("integer", "long", "float", "double")
SPELLINGS = {
    r"\p{Alnum}": "a-zA-Z0-9", r"\p{L}": r"\w", r"\p{N}": r"\w", r"\p{Z}": r"\s",
    r"[\p{Print}]": "[ -~]", r"\p{Print}": "[ -~]", r"\p{ASCII}": r"[\x00-\x7f]", r"\z": r"\Z",
    r"\uD800\uDC00-\uDBFF\uDFFF": r"\U00010000-\U0010FFFF",
}  # fmt: skip
"""What the models' patterns say that Python does not read, and its nearest.

`L`, `N` only where the underscore is allowed.
"""
TRUTHS = {"true": True, "false": False}


def checked_request(operation: str, request: Request, service: str = SAGEMAKER) -> Request:
    """A request with its numbers and truth values typed.

    Refuses every value outside the API model, all at once.

    CloudFormation hands numbers over as text, so text that is one is taken for one. Fields that the
    model does not know are
    left as they are.
    """
    faults: list[str] = []
    model = api_model(service)
    typed: Request = _Check(shapes=model.shapes, faults=faults).check_type(
        model.inputs[operation], request, ""
    )
    if faults:
        noun = "error" if len(faults) == 1 else "errors"
        raise validation_error(f"{len(faults)} validation {noun} detected: {'; '.join(faults)}")
    return typed


def fault(value: object, place: str, rule: str) -> str:
    """One fault in AWS's words."""
    shown = "null" if value is None else f"'{_shorten(value)}'"
    return f"Value {shown} at '{place}' failed to satisfy constraint: {rule}"


@dataclass(kw_only=True)
class _Check:
    shapes: Mapping[str, Shape]
    faults: list[str] = field(default_factory=list)

    def check_type(self, name: str, value: Any, place: str) -> Any:
        shape = self.shapes[name]
        kind = shape["type"]
        if kind == "structure" and isinstance(value, Mapping):
            return self._structure(shape, value, place)
        if kind == "list" and isinstance(value, list | tuple):
            self._note(broken_rules(shape, value), value, place)
            return [
                self.check_type(shape["member"]["shape"], item, f"{place}.{at}.member")
                for at, item in enumerate(value, start=1)
            ]
        if kind == "map" and isinstance(value, Mapping):
            return self._map(shape, value, place)
        scalar = _scalar(kind, value)
        self._note(broken_rules(shape, scalar), scalar, place)
        return scalar

    def _structure(self, shape: Shape, value: Request, place: str) -> Request:
        members = shape["members"]
        for name in shape.get("required", ()):
            if value.get(name) is None:
                self.faults.append(fault(None, _below(place, name), "Member must not be null"))
        return {
            name: self.check_type(members[name]["shape"], item, _below(place, name))
            if name in members and item is not None
            else item
            for name, item in value.items()
        }

    def _map(self, shape: Shape, value: Request, place: str) -> Request:
        self._note(broken_rules(shape, value), value, place)
        keys, values = self.shapes[shape["key"]["shape"]], self.shapes[shape["value"]["shape"]]
        typed = {str(key): _scalar(values["type"], item) for key, item in value.items()}
        for noun, shaped, items in (
            ("keys", keys, typed.keys()),
            ("value", values, typed.values()),
        ):
            if any(broken_rules(shaped, item) for item in items):
                self.faults.append(
                    fault(
                        value,
                        place,
                        f"Map {noun} must satisfy constraint: [{', '.join(rules(shaped))}]",
                    )
                )
        return typed

    def _note(self, broken: list[str], value: object, place: str) -> None:
        self.faults.extend(fault(value, place, rule) for rule in broken)


def broken_rules(shape: Shape, value: Any) -> list[str]:
    """Which of a shape's rules a value breaks."""
    size = (
        value
        if shape["type"] in NUMBERS
        else len(value)
        if isinstance(value, str | list | tuple | Mapping)
        else 0
    )
    held: Mapping[str, Callable[[Any], bool]] = {
        "min": lambda low: size >= low,
        "max": lambda high: size <= high,
        "pattern": lambda pattern: _compile(pattern).fullmatch(value) is not None,
        "enum": lambda values: value in values,
    }
    return [
        _rule(shape, name)
        for name, holds in held.items()
        if name in shape and not holds(shape[name])
    ]


def rules(shape: Shape) -> list[str]:
    """A shape's rules in AWS's words."""
    return [_rule(shape, name) for name in ("max", "min", "pattern", "enum") if name in shape]


def _rule(shape: Shape, name: str) -> str:
    noun = "value" if shape["type"] in NUMBERS else "length"
    messages = {
        "min": f"Member must have {noun} greater than or equal to {shape.get('min')}",
        "max": f"Member must have {noun} less than or equal to {shape.get('max')}",
        "pattern": f"Member must satisfy regular expression pattern: {shape.get('pattern')}",
        "enum": f"Member must satisfy enum value set: [{', '.join(shape.get('enum', ()))}]",
    }
    return messages[name]


@functools.cache
def _compile(pattern: str) -> re.Pattern[str]:
    for theirs, pythons in SPELLINGS.items():
        pattern = pattern.replace(theirs, pythons)
    return re.compile(pattern)


def _scalar(kind: str, value: Any) -> Any:
    if kind in NUMBERS:
        return _number(kind, value)
    if kind == "boolean":
        if isinstance(value, bool):
            return value
        if str(value).lower() in TRUTHS:
            return TRUTHS[str(value).lower()]
        raise _unlike(value, "a Boolean")
    if kind == "string" and isinstance(value, str | int | float):
        return str(value)
    if kind in ("structure", "list", "map", "string"):
        raise _unlike(
            value,
            {"structure": "an Object", "list": "a List", "map": "a Map", "string": "a String"}[
                kind
            ],
        )
    return value


def _number(kind: str, value: Any) -> float | int:
    try:
        exact = float(str(value))
    except ValueError:
        raise _unlike(value, "a Number") from None
    if kind in ("integer", "long") and not exact.is_integer():
        raise _unlike(value, "an Integer")
    return int(exact) if exact.is_integer() else exact


def _unlike(value: object, wanted: str) -> AwsError:
    return AwsError("SerializationException", f"{value!r} can not be converted to {wanted}")


def _below(place: str, name: str) -> str:
    lowered = name[:1].lower() + name[1:]
    return f"{place}.{lowered}" if place else lowered


def _shorten(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_shorten(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_shorten(item) for item in value) + "]"
    return str(value)
