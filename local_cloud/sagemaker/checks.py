"""What SageMaker refuses in an endpoint config beyond its API model.

Each rule is a pure function of the request.

Error codes are AWS's. Its sentences stand where they are known; the others say what its API
reference and guides say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from local_cloud.protocol.constraints import fault
from local_cloud.protocol.errors import AwsError, validation_error

Request = Mapping[str, Any]
FindModel = Callable[[str], Request]
ROUTED_BY_LOAD = "LEAST_OUTSTANDING_REQUESTS"
LOCAL_STORAGE_FAMILIES = frozenset(
    {
        "g4dn",
        "g5",
        "g6",
        "g6e",
        "g7",
        "g7e",
        "p3dn",
        "p4d",
        "p4de",
        "p5",
        "p5e",
        "p5en",
        "p6-b200",
        "p6-b300",
    }
)
"""Instance families with NVMe disks of their own; so are those whose generation ends in `d`."""


def all_variants(config: Request) -> tuple[Request, ...]:
    """Production and shadow variants of an endpoint config."""
    return (*config["ProductionVariants"], *(config.get("ShadowProductionVariants") or ()))


def check_endpoint_config(config: Request, find_model: FindModel) -> None:
    """Refuses an endpoint config that SageMaker would refuse.

    `find_model` refuses a model that is not there.
    """
    variants = all_variants(config)
    check_names([variant["VariantName"] for variant in variants])
    for at, variant in enumerate(config["ProductionVariants"], start=1):
        check_capacity(variant, f"productionVariants.{at}.member")
    for at, variant in enumerate(config.get("ShadowProductionVariants") or (), start=1):
        check_capacity(variant, f"shadowProductionVariants.{at}.member")
    models = [find_model(name) for variant in variants for name in model_names(variant)]
    for variant in variants:
        check_pools(variant, [find_model(name) for name in model_names(variant)])
    check_shadow(config, models)
    check_asynchronous(config)


def check_names(names: Sequence[str]) -> None:
    """Variant names are unique within an endpoint config."""
    if len(set(names)) != len(names):
        raise validation_error(
            "Production variant names must be unique within an endpoint config: "
            f"{', '.join(names)}."
        )


def check_capacity(variant: Request, place: str) -> None:
    """A variant names its model, and either one instance type or pools of them, with a count."""
    if variant.get("ServerlessConfig") is not None:
        raise validation_error(
            f"Variant {variant['VariantName']} is serverless, which the local cloud does not run."
        )
    if variant.get("ManagedInstanceScaling") is not None and variant.get("ModelName") is not None:
        raise validation_error(
            "ManagedInstanceScaling is only supported for inference component endpoints."
        )
    if variant.get("InstanceType") is not None and variant.get("InstancePools") is not None:
        raise validation_error(
            f"Variant {variant['VariantName']} has InstanceType and InstancePools: only one of "
            "them is allowed."
        )
    needed = [
        "ModelName",
        "InitialInstanceCount",
        *(() if variant.get("InstancePools") is not None else ("InstanceType",)),
    ]
    absent = [name for name in needed if variant.get(name) is None]
    if absent:
        faults = [
            fault(None, f"{place}.{name[0].lower()}{name[1:]}", "Member must not be null")
            for name in absent
        ]
        noun = "error" if len(faults) == 1 else "errors"
        raise validation_error(f"{len(faults)} validation {noun} detected: {'; '.join(faults)}")


def check_pools(variant: Request, models: Sequence[Request]) -> None:
    """Refuses instance pools that SageMaker refuses.

    Pools need distinct types and priorities, routing by outstanding requests, and one model each.
    """
    pools = variant.get("InstancePools")
    if pools is None:
        return
    name = variant["VariantName"]
    for field in ("InstanceType", "Priority"):
        values = [pool[field] for pool in pools]
        if len(set(values)) != len(values):
            raise validation_error(
                f"The InstancePools of variant {name} name a {field} twice: "
                f"{', '.join(map(str, values))}."
            )
    strategy = (variant.get("RoutingConfig") or {}).get("RoutingStrategy")
    if strategy != ROUTED_BY_LOAD:
        raise validation_error(
            f"InstancePools of variant {name} require RoutingConfig with RoutingStrategy "
            f"{ROUTED_BY_LOAD}, found {strategy}."
        )
    if any(is_multi_model(model) for model in models):
        raise validation_error(
            f"InstancePools of variant {name} are not supported for multi-model endpoints."
        )


def check_shadow(config: Request, models: Sequence[Request]) -> None:
    """Refuses a shadow variant beside more than one production variant or a multi-model one."""
    shadows = config.get("ShadowProductionVariants")
    if shadows is None:
        return
    production = config["ProductionVariants"]
    if len(production) != 1 or len(shadows) != 1:
        raise validation_error(
            "If you use ShadowProductionVariants, you can only specify one variant for "
            "ProductionVariants and one variant for "
            f"ShadowProductionVariants; found {len(production)} and {len(shadows)}."
        )
    if config.get("AsyncInferenceConfig") is not None:
        raise validation_error(
            "ShadowProductionVariants are not supported for asynchronous endpoints."
        )
    if any(is_multi_model(model) for model in models):
        raise validation_error(
            "ShadowProductionVariants are not supported for multi-model endpoints."
        )


def check_asynchronous(config: Request) -> None:
    """An asynchronous endpoint says where its answers go."""
    asynchronous = config.get("AsyncInferenceConfig")
    if asynchronous is not None and asynchronous["OutputConfig"].get("S3OutputPath") is None:
        raise validation_error("AsyncInferenceConfig requires S3OutputPath in its OutputConfig.")


def model_names(variant: Request) -> tuple[str, ...]:
    """Every model that a variant may start: its own and those of its instance pools."""
    overrides = [pool.get("ModelNameOverride") for pool in variant.get("InstancePools") or ()]
    return (variant["ModelName"], *(name for name in overrides if name is not None))


def instance_types(variant: Request) -> tuple[str, ...]:
    """The instance types that a variant may run on, the most wanted first."""
    return tuple(pool["InstanceType"] for pool in ordered_pools(variant))


def ordered_pools(variant: Request) -> tuple[Request, ...]:
    """A variant's instance pools by priority; a variant without pools is one pool."""
    pools = variant.get("InstancePools")
    if pools is None:
        return ({"InstanceType": variant["InstanceType"], "Priority": 1},)
    return tuple(sorted(pools, key=lambda pool: int(pool["Priority"])))


def types_beyond_the_key(config: Request) -> tuple[str, ...]:
    """Instance types whose own disks the config's KMS key does not encrypt.

    SageMaker accepts the key and says nothing.
    """
    if config.get("KmsKeyId") is None:
        return ()
    found = {
        name
        for variant in all_variants(config)
        for name in instance_types(variant)
        if has_local_storage(name)
    }
    return tuple(sorted(found))


def has_local_storage(instance_type: str) -> bool:
    """Whether an instance type has NVMe disks of its own, whose encryption takes no key."""
    family = instance_type.split(".")[1]
    return family in LOCAL_STORAGE_FAMILIES or family.rstrip("n").endswith("d")


ECR_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/.+")
ENVIRONMENT_BYTES = 32 * 1024


def check_model(request: Request) -> None:
    """Refuses a model whose role, containers or model data SageMaker refuses without look-up."""
    if request.get("ExecutionRoleArn") is None:
        raise validation_error(
            "1 validation error detected: "
            f"{fault(None, 'executionRoleArn', 'Member must not be null')}"
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
            f"The Environment of all containers takes {size} bytes: keys and values may take "
            f"{ENVIRONMENT_BYTES} together."
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
            "1 validation error detected: "
            f"{fault(None, 'primaryContainer.image', 'Member must not be null')}"
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
            f"ModelDataUrl \"{url}\" must be an S3 prefix that ends with '/' when Mode is "
            "MultiModel."
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
