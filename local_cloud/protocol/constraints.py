"""Requests held against AWS's own models of its APIs, as botocore ships them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape

from local_cloud.protocol.errors import Actions, AwsError, Request, validation_error

SAGEMAKER, RUNTIME, SCALING = "sagemaker", "sagemaker-runtime", "application-autoscaling"
NUMBERS = ("integer", "long", "float", "double")
TRUTHS = {"true": True, "false": False}
TYPES = {
    "structure": "an Object", "list": "a List", "map": "a Map", "string": "a String",
    "boolean": "a Boolean",
}  # fmt: skip


@functools.cache
def input_shape(operation: str, service: str = SAGEMAKER) -> StructureShape:
    """Return the request shape of an operation."""
    shape = _service_model(service).operation_model(operation).input_shape
    assert shape is not None
    return shape


@functools.cache
def _service_model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"))


@functools.cache
def header_fields(operation: str) -> Mapping[str, str]:
    """Return the lower-case header names of a SageMaker Runtime request, by field."""
    return {
        name: str(member.serialization["name"]).lower()
        for name, member in input_shape(operation, RUNTIME).members.items()
        if member.serialization.get("location") == "header"
    }


def checked_actions(actions: Actions, service: str = SAGEMAKER) -> Actions:
    """Return actions that check their requests against the API model first.

    A field that the model leaves out and an action needs is refused by its name.
    """

    def call(name: str, request: Request) -> Request:
        typed = checked_request(name, request, service)
        try:
            return actions[name](typed)
        except KeyError as error:
            raise validation_error(f"The local cloud needs {error}, which is missing.") from error

    return {name: functools.partial(call, name) for name in actions}


def checked_request(operation: str, request: Request, service: str = SAGEMAKER) -> Request:
    """Return a request with typed values; refuse all values outside the API model at once.

    CloudFormation passes numbers and truth values as text. Unknown fields stay as they are.
    """
    faults: list[str] = []
    typed: Request = _convert(input_shape(operation, service), request, "", faults)
    if faults:
        noun = "error" if len(faults) == 1 else "errors"
        message = f"{len(faults)} validation {noun} detected: {'; '.join(faults)}"
        raise validation_error(message)
    return typed


def fault(value: object, path: str, rule: str) -> str:
    """Return one fault in AWS's words."""
    shown = "null" if value is None else f"'{_format(value)}'"
    return f"Value {shown} at '{path}' failed to satisfy constraint: {rule}"


def _convert(shape: Shape, value: Any, path: str, faults: list[str]) -> Any:
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        return _convert_structure(shape, value, path, faults)
    if not isinstance(shape, MapShape | ListShape) or not isinstance(value, Mapping | list | tuple):
        value = _scalar(shape.type_name, value)
    faults.extend(fault(value, path, rule) for rule in _broken_rules(shape, value))
    if isinstance(shape, ListShape):
        return [
            _convert(shape.member, item, f"{path}.{number}.member", faults)
            for number, item in enumerate(value, start=1)
        ]
    if isinstance(shape, MapShape):
        return {
            _convert(shape.key, key, f"{path}.key", faults): _convert(
                shape.value, item, f"{path}.{key}", faults
            )
            for key, item in value.items()
        }
    return value


def _convert_structure(
    shape: StructureShape, value: Request, path: str, faults: list[str]
) -> Request:
    paths = {
        name: f"{path}.{name[:1].lower()}{name[1:]}".removeprefix(".") for name in shape.members
    }
    faults.extend(
        fault(None, paths[name], "Member must not be null")
        for name in shape.required_members
        if value.get(name) is None
    )
    return {
        name: _convert(shape.members[name], item, paths[name], faults)
        if name in paths and item is not None
        else item
        for name, item in value.items()
    }


def _size(value: Any) -> float:
    if isinstance(value, int | float):
        return value
    return len(value) if isinstance(value, str | list | tuple | Mapping) else 0


def _matches(pattern: str, value: str) -> bool:
    """Whether a text has a pattern; one that only Java reads fits every text."""
    try:
        return re.fullmatch(pattern, value) is not None
    except re.error:
        return True


RULES: Mapping[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "max": ("have {} less than or equal to {}", lambda value, most: _size(value) <= most),
    "min": ("have {} greater than or equal to {}", lambda value, least: _size(value) >= least),
    "pattern": (
        "satisfy regular expression pattern: {1}",
        lambda value, pattern: _matches(pattern, value),
    ),
    "enum": ("satisfy enum value set: [{1}]", lambda value, values: value in values),
}


def _broken_rules(shape: Shape, value: Any) -> list[str]:
    """The sentences of the rules of a shape that a value breaks."""
    noun = "value" if shape.type_name in NUMBERS else "length"
    limits = {name: shape.metadata[name] for name in RULES if name in shape.metadata}
    return [
        f"Member must {RULES[name][0].format(noun, ', '.join(limit) if name == 'enum' else limit)}"
        for name, limit in limits.items()
        if not RULES[name][1](value, limit)
    ]


def _scalar(kind: str, value: Any) -> Any:
    if kind in NUMBERS:
        return _number(kind, value)
    if kind == "timestamp":
        return _seconds(value)
    if kind == "boolean" and str(value).lower() in TRUTHS:
        return TRUTHS[str(value).lower()]
    if kind == "string" and isinstance(value, str | int | float):
        return str(value)
    if kind in TYPES:
        raise _conversion_error(value, TYPES[kind])
    return value


def _number(kind: str, value: Any) -> float | int:
    try:
        number = float(str(value))
    except ValueError:
        raise _conversion_error(value, "a Number") from None
    if kind in ("integer", "long") and not number.is_integer():
        raise _conversion_error(value, "an Integer")
    return int(number) if number.is_integer() else number


def _seconds(value: Any) -> float:
    """Seconds since the epoch, also of text that begins with a date; in UTC unless it says more."""
    if isinstance(value, int | float):
        return value
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        raise _conversion_error(value, "a Timestamp") from None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _conversion_error(value: object, kind: str) -> AwsError:
    return AwsError("SerializationException", f"{value!r} can not be converted to {kind}")


def _format(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}={_format(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_format, value)) + "]"
    return str(value)
