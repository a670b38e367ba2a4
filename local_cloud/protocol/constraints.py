"""Requests held against AWS's own models of its APIs, as botocore ships them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping
from typing import Any

from botocore.loaders import Loader
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StructureShape
from botocore.validate import ParamValidator

from local_cloud.protocol.errors import Actions, Request, validation_error

SAGEMAKER, RUNTIME, SCALING = "sagemaker", "sagemaker-runtime", "application-autoscaling"
NUMBERS = ("integer", "long", "float", "double")
TRUTHS = {"true": True, "false": False}


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

    CloudFormation passes numbers and truth values as text. Unknown fields stay as they are; enums
    and patterns are cfn-lint's.
    """
    shape = input_shape(operation, service)
    known = _convert(
        shape, {name: value for name, value in request.items() if name in shape.members}
    )
    report = ParamValidator().validate(known, shape)
    if report.has_errors():
        raise validation_error("; ".join(report.generate_report().splitlines()))
    return {**request, **known}


def _convert(shape: Shape, value: Any) -> Any:
    """Return a value with the numbers and truth values that its text stands for, without Nones."""
    if isinstance(shape, StructureShape) and isinstance(value, Mapping):
        present = {name: item for name, item in value.items() if item is not None}
        return {
            name: _convert(shape.members[name], item) if name in shape.members else item
            for name, item in present.items()
        }
    if isinstance(shape, ListShape) and isinstance(value, list | tuple):
        return [_convert(shape.member, item) for item in value]
    if isinstance(shape, MapShape) and isinstance(value, Mapping):
        return {key: _convert(shape.value, item) for key, item in value.items()}
    if shape.type_name in NUMBERS and isinstance(value, str | int | float):
        with contextlib.suppress(ValueError):
            number = float(value)
            return int(number) if number.is_integer() else number
    if shape.type_name == "boolean":
        return TRUTHS.get(str(value).lower(), value)
    return str(value) if shape.type_name == "string" and isinstance(value, int | float) else value
