"""What SageMaker refuses in a model beyond its API model, and what several checks share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from local_cloud.aws_error import AwsError, validation_error
from local_cloud.constraints import fault

ECR_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/.+")
ENVIRONMENT_BYTES = 32 * 1024
Request = Mapping[str, Any]


def check_model(request: Request) -> None:
    """Refuses a model whose role, containers or model data SageMaker would refuse, before anything
    is looked up.
    """
    if request.get("ExecutionRoleArn") is None:
        raise validation_error(
            f"1 validation error detected: {fault(None, 'executionRoleArn', 'Member must not be null')}"
        )
    definitions = containers(request)
    if not definitions:
        raise validation_error(
            "You must provide either the PrimaryContainer or the Containers parameter."
        )
    if request.get("PrimaryContainer") is not None and request.get("Containers"):
        raise validation_error(
            "You can not provide both the PrimaryContainer and the Containers parameter."
        )
    for definition in definitions:
        _check_container(definition)
    size = sum(_bytes(definition.get("Environment") or {}) for definition in definitions)
    if size > ENVIRONMENT_BYTES:
        raise validation_error(
            f"The Environment of all containers takes {size} bytes: keys and values may take {ENVIRONMENT_BYTES} together."
        )


def containers(request: Request) -> tuple[Mapping[str, Any], ...]:
    """A model's container definitions, whichever way they are given."""
    if request.get("PrimaryContainer") is not None:
        return (request["PrimaryContainer"],)
    return tuple(request.get("Containers") or ())


def is_multi_model(model: Request) -> bool:
    """Whether a model's container loads target models by itself."""
    return any(definition.get("Mode") == "MultiModel" for definition in containers(model))


def _check_container(definition: Request) -> None:
    image = definition.get("Image")
    if image is None:
        raise validation_error(
            f"1 validation error detected: {fault(None, 'primaryContainer.image', 'Member must not be null')}"
        )
    if ECR_IMAGE.fullmatch(image) is None:
        raise validation_error(
            f'Using non-ECR image "{image}" without Vpc repository access mode is not supported.'
        )
    url, source = definition.get("ModelDataUrl"), definition.get("ModelDataSource")
    if url is not None and source is not None:
        raise validation_error(
            "Both ModelDataUrl and ModelDataSource are given: only one of them is allowed."
        )
    if definition.get("Mode") == "MultiModel":
        _check_multi_model(url, source)


def _check_multi_model(url: str | None, source: object) -> None:
    if source is not None:
        raise validation_error(
            "ModelDataSource is not supported for multi-model endpoints: use ModelDataUrl."
        )
    if url is None or not url.endswith("/"):
        raise validation_error(
            f"ModelDataUrl \"{url}\" must be an S3 prefix that ends with '/' when Mode is MultiModel."
        )


def _bytes(environment: Mapping[str, str]) -> int:
    return sum(
        len(str(key).encode()) + len(str(value).encode()) for key, value in environment.items()
    )


def number(value: object) -> float:
    """A number that a template may have given as text."""
    try:
        return float(str(value))
    except ValueError:
        raise AwsError("ValidationException", f"Expected a number, found {value!r}.") from None
