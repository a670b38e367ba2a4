"""What SageMaker refuses in a request, as pure functions of the request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from workbench.local_cloud.aws_error import validation_error

NAME = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
NAME_CHARACTERS = 63
INSTANCE_TYPE = re.compile(r"ml\.[a-z0-9-]+\.[a-z0-9-]+")
ECR_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com/.+")
ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@/-]+")
Request = Mapping[str, Any]


def required(request: Request, field: str) -> Any:
    """A field's value, or SageMaker's refusal of its absence."""
    if request.get(field) is None:
        raise _constraint("null", field, "Member must not be null")
    return request[field]


def checked_name(request: Request, field: str) -> str:
    """A resource name of at most 63 letters, digits and inner hyphens."""
    name = str(required(request, field))
    if len(name) > NAME_CHARACTERS:
        raise _constraint(f"'{name}'", field, f"Member must have length less than or equal to {NAME_CHARACTERS}")
    if NAME.fullmatch(name) is None:
        pattern = r"^[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}$"
        raise _constraint(f"'{name}'", field, f"Member must satisfy regular expression pattern: {pattern}")
    return name


def check_model(request: Request) -> None:
    """Refuses a model whose role, image or model data SageMaker would refuse, before anything is looked up."""
    role = str(required(request, "ExecutionRoleArn"))
    if ROLE.fullmatch(role) is None:
        raise _constraint(f"'{role}'", "ExecutionRoleArn", "Member must satisfy regular expression pattern: " + ROLE.pattern)
    definitions = containers(request)
    if not definitions:
        raise validation_error("You must provide either the PrimaryContainer or the Containers parameter.")
    for definition in definitions:
        _check_container(definition)


def containers(request: Request) -> tuple[Mapping[str, Any], ...]:
    """A model's container definitions, whichever way they are given."""
    if request.get("PrimaryContainer") is not None:
        return (request["PrimaryContainer"],)
    return tuple(request.get("Containers") or ())


def _check_container(definition: Request) -> None:
    image = str(required(definition, "Image"))
    if ECR_IMAGE.fullmatch(image) is None:
        raise validation_error(f'Using non-ECR image "{image}" without Vpc repository access mode is not supported.')
    url, mode = definition.get("ModelDataUrl"), definition.get("Mode", "SingleModel")
    if mode not in ("SingleModel", "MultiModel"):
        raise _constraint(f"'{mode}'", "Mode", "Member must satisfy enum value set: [SingleModel, MultiModel]")
    if url is not None and not re.fullmatch(r"s3://[^/]+/.*", url):
        raise validation_error(f'Invalid model data URL "{url}": it must be an s3:// URL.')
    if mode == "MultiModel" and (url is None or not url.endswith("/")):
        raise validation_error(f"ModelDataUrl \"{url}\" must be an S3 prefix that ends with '/' when Mode is MultiModel.")
    environment = definition.get("Environment") or {}
    if len(environment) > 100 or any(len(str(value)) > 1024 for value in environment.values()):
        raise validation_error("Environment holds more than 100 entries or a value of more than 1024 characters.")


def check_endpoint_config(request: Request) -> None:
    """Refuses an endpoint config whose variants SageMaker would refuse; whether its models exist is not asked here."""
    variants: Sequence[Request] = required(request, "ProductionVariants")
    if not 1 <= len(variants) <= 10:
        raise validation_error(f"ProductionVariants holds {len(variants)} variants: 1 to 10 are allowed.")
    names = [checked_name(variant, "VariantName") for variant in variants]
    if len(set(names)) != len(names):
        raise validation_error(f"Production variant names must be unique within an endpoint config: {', '.join(names)}.")
    for variant in (*variants, *(request.get("ShadowProductionVariants") or ())):
        _check_variant(variant)


def _check_variant(variant: Request) -> None:
    checked_name(variant, "ModelName")
    if variant.get("ServerlessConfig") is not None:
        return
    pools = [pool["InstanceType"] for pool in variant.get("InstancePools") or ()]
    for instance_type in pools if pools else (str(required(variant, "InstanceType")),):
        if INSTANCE_TYPE.fullmatch(instance_type) is None:
            raise _constraint(f"'{instance_type}'", "InstanceType", "Member must satisfy enum value set: [ml.…]")
    if not pools and number(variant.get("InitialInstanceCount", 1)) < 1:
        raise _constraint("'0'", "InitialInstanceCount", "Member must have value greater than or equal to 1")
    for field in ("ContainerStartupHealthCheckTimeoutInSeconds", "ModelDataDownloadTimeoutInSeconds"):
        if not 60 <= number(variant.get(field, 60)) <= 3600:
            raise _constraint(f"'{variant[field]}'", field, "Member must have value between 60 and 3600")


def number(value: object) -> float:
    """A number that a template may have given as text."""
    try:
        return float(str(value))
    except ValueError:
        raise validation_error(f"Expected a number, found {value!r}.") from None


def _constraint(value: str, field: str, rule: str) -> Exception:
    name = field[:1].lower() + field[1:]
    shown = f"Value {value} at '{name}' failed to satisfy constraint: {rule}"
    return validation_error(f"1 validation error detected: {shown}")
