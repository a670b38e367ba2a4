"""Refusals of models and endpoint configs beyond SageMaker's API model; pure.

Error codes are AWS's. Its sentences stand where they are known; the others say what its API
reference and guides say.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from local_cloud.protocol.constraints import constraint_error, null_fault
from local_cloud.protocol.errors import validation_error
from local_cloud.sagemaker.platform_data import instance_rows, scale_to_zero_regions
from onboarding.aws_limits import ENVIRONMENT_BYTES

Request = Mapping[str, Any]
FindModel = Callable[[str], Request]
ROUTED_BY_LOAD = "LEAST_OUTSTANDING_REQUESTS"
ECR_IMAGE = re.compile(r"\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/.+")
NOT_FOR_COMPONENTS = ("ShadowProductionVariants", "AsyncInferenceConfig", "DataCaptureConfig")
"""Fields of which it is not known what SageMaker does with them beside inference components."""


def all_variants(config: Request) -> tuple[Request, ...]:
    """Return production and shadow variants of an endpoint config."""
    return (*config["ProductionVariants"], *(config.get("ShadowProductionVariants") or ()))


def hosts_components(variant: Request) -> bool:
    """Whether a variant names no model: its instances take copies of inference components."""
    return variant.get("ModelName") is None


def check_endpoint_config(config: Request, find_model: FindModel, region: str) -> None:
    """Refuse an endpoint config that SageMaker would refuse; `find_model` refuses unknown names."""
    variants = all_variants(config)
    if twice := _repeated(variant["VariantName"] for variant in variants):
        raise validation_error(
            f"Production variant names must be unique within an endpoint config: {twice}."
        )
    for field in ("ProductionVariants", "ShadowProductionVariants"):
        for number, variant in enumerate(config.get(field) or (), start=1):
            _check_capacity(variant, f"{field[0].lower()}{field[1:]}.{number}.member")
            _check_managed_scaling(variant, region)
    _check_components(config)
    models = []
    for variant in variants:
        own = [find_model(name) for name in model_names(variant)]
        _check_pools(variant, own)
        models += own
    if config.get("ShadowProductionVariants") is not None:
        _check_shadow(config, models)
    asynchronous = config.get("AsyncInferenceConfig")
    if asynchronous is not None and asynchronous["OutputConfig"].get("S3OutputPath") is None:
        raise validation_error("AsyncInferenceConfig requires S3OutputPath in its OutputConfig.")


def _repeated(names: Iterable[object]) -> str:
    """What comes more than once."""
    return ", ".join(sorted(str(name) for name, count in Counter(names).items() if count > 1))


def _check_capacity(variant: Request, path: str) -> None:
    """A variant names its model, and either one instance type or pools of them, with a count."""
    name, pools = variant["VariantName"], variant.get("InstancePools")
    if variant.get("ServerlessConfig") is not None:
        raise validation_error(f"Variant {name} is serverless, which the local cloud does not run.")
    if variant.get("ManagedInstanceScaling") is not None and not hosts_components(variant):
        raise validation_error(
            "ManagedInstanceScaling is only supported for inference component endpoints."
        )
    if variant.get("InstanceType") is not None and pools is not None:
        raise validation_error(
            f"Variant {name} has InstanceType and InstancePools: only one of them is allowed."
        )
    required = {
        "initialInstanceCount": variant.get("InitialInstanceCount"),
        "instanceType": variant.get("InstanceType") if pools is None else pools,
    }
    faults = [null_fault(f"{path}.{field}") for field, value in required.items() if value is None]
    if faults:
        raise constraint_error(*faults)


def _check_components(config: Request) -> None:
    """Variants without models need a role, and neither shadows, queues nor pools beside them."""
    hosting = [variant for variant in all_variants(config) if hosts_components(variant)]
    if not hosting:
        return
    if config.get("ExecutionRoleArn") is None:
        raise validation_error(
            "ExecutionRoleArn is required in an endpoint config whose variants name no model: "
            f"{', '.join(variant['VariantName'] for variant in hosting)}."
        )
    if len(hosting) < len(all_variants(config)):
        raise validation_error(
            "Either all variants of an endpoint config name a model, or none does."
        )
    unsupported = [field for field in NOT_FOR_COMPONENTS if config.get(field)]
    unsupported += [name for name in ("InstancePools",) for item in hosting if item.get(name)]
    if unsupported:
        raise validation_error(
            f"The local cloud does not know what SageMaker does with {', '.join(unsupported)} of "
            "an endpoint config for inference components."
        )


def _check_managed_scaling(variant: Request, region: str) -> None:
    """Bounds hold the initial count; zero instances only where a region is known to take it."""
    scaling = variant.get("ManagedInstanceScaling")
    if scaling is None or scaling.get("Status") != "ENABLED":
        return
    low, high = scaling.get("MinInstanceCount", 1), scaling.get("MaxInstanceCount")
    count, name = variant["InitialInstanceCount"], variant["VariantName"]
    if high is not None and not max(low, 1) <= count <= high:
        raise validation_error(
            f"InitialInstanceCount {count} of variant {name} must lie between MinInstanceCount "
            f"{low} and MaxInstanceCount {high} of its ManagedInstanceScaling."
        )
    accepted, refused = scale_to_zero_regions()
    if low == 0 and region not in accepted:
        known = "refuses" if region in refused else "is not known to accept"
        raise validation_error(f"SageMaker {known} MinInstanceCount 0 in {region}.")


def _check_pools(variant: Request, models: Sequence[Request]) -> None:
    """Pools need distinct types and priorities, routing by load, and single-model containers."""
    pools, name = variant.get("InstancePools"), variant["VariantName"]
    if pools is None:
        return
    for field in ("InstanceType", "Priority"):
        values = [str(pool[field]) for pool in pools]
        if len(set(values)) != len(values):
            raise validation_error(
                f"The InstancePools of variant {name} name a {field} twice: {', '.join(values)}."
            )
    strategy = (variant.get("RoutingConfig") or {}).get("RoutingStrategy")
    if strategy != ROUTED_BY_LOAD:
        raise validation_error(
            f"InstancePools of variant {name} require RoutingConfig with RoutingStrategy "
            f"{ROUTED_BY_LOAD}, found {strategy}."
        )
    if any(map(is_multi_model, models)):
        raise validation_error(
            f"InstancePools of variant {name} are not supported for multi-model endpoints."
        )


def _check_shadow(config: Request, models: Sequence[Request]) -> None:
    counts = [len(config[f"{kind}Variants"]) for kind in ("Production", "ShadowProduction")]
    if counts != [1, 1]:
        raise validation_error(
            "If you use ShadowProductionVariants, you can only specify one variant for "
            "ProductionVariants and one variant for ShadowProductionVariants; found "
            f"{counts[0]} and {counts[1]}."
        )
    for kind, is_kind in (
        ("asynchronous", config.get("AsyncInferenceConfig") is not None),
        ("multi-model", any(map(is_multi_model, models))),
    ):
        if is_kind:
            raise validation_error(
                f"ShadowProductionVariants are not supported for {kind} endpoints."
            )


def model_names(variant: Request) -> tuple[str, ...]:
    """Return every model that a variant may start: its own and those of its instance pools."""
    overrides = [pool.get("ModelNameOverride") for pool in variant.get("InstancePools") or ()]
    return tuple(name for name in (variant.get("ModelName"), *overrides) if name is not None)


def instance_types(variant: Request) -> tuple[str, ...]:
    """Return the instance types that a variant may run on, by priority."""
    return tuple(pool["InstanceType"] for pool in ordered_pools(variant))


def ordered_pools(variant: Request) -> tuple[Request, ...]:
    """Return a variant's instance pools by priority; a variant without pools is one pool."""
    pools = variant.get("InstancePools")
    if pools is None:
        return ({"InstanceType": variant["InstanceType"], "Priority": 1},)
    return tuple(sorted(pools, key=lambda pool: int(pool["Priority"])))


def has_local_storage(instance_type: str) -> bool:
    """Whether an instance type has NVMe disks of its own, whose encryption takes no key."""
    return bool(instance_rows().get(instance_type, {}).get("local_nvme_gb"))


def check_model(request: Request) -> None:
    """Refuse a model whose role, containers or model data SageMaker refuses without look-up."""
    if request.get("ExecutionRoleArn") is None:
        raise constraint_error(null_fault("executionRoleArn"))
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
    texts = [
        text
        for definition in definitions
        for item in (definition.get("Environment") or {}).items()
        for text in item
    ]
    size = sum(len(str(text).encode()) for text in texts)
    if size > ENVIRONMENT_BYTES:
        raise validation_error(
            f"The Environment of all containers takes {size} bytes: keys and values may take "
            f"{ENVIRONMENT_BYTES} together."
        )


def containers(request: Request) -> tuple[Request, ...]:
    """Return a model's container definitions, from either field."""
    primary = request.get("PrimaryContainer")
    return tuple(request.get("Containers") or ()) if primary is None else (primary,)


def is_multi_model(model: Request) -> bool:
    """Whether a model's container loads target models by itself."""
    return any(definition.get("Mode") == "MultiModel" for definition in containers(model))


def check_image(image: str) -> None:
    """Refuse an image that is not in ECR."""
    if ECR_IMAGE.fullmatch(image) is None:
        raise validation_error(
            f'Using non-ECR image "{image}" without Vpc repository access mode is not supported.'
        )


def check_source(definition: Request) -> None:
    """Refuse an S3DataSource whose type, compression and URI do not go together."""
    source = (definition.get("ModelDataSource") or {}).get("S3DataSource")
    if source is None:
        return
    uri, kind, compression = (source[name] for name in ("S3Uri", "S3DataType", "CompressionType"))
    if kind == "S3Prefix" and not uri.endswith("/"):
        raise validation_error(
            f'S3Uri "{uri}" must end with a forward slash (/) when S3DataType is S3Prefix.'
        )
    if kind == "S3Prefix" and compression == "Gzip":
        raise validation_error("CompressionType Gzip is only supported with S3DataType S3Object.")
    if kind == "S3Object" and compression == "None":
        raise validation_error(
            "S3DataType S3Object with CompressionType None is a single file, which the local cloud "
            "does not serve: use S3Prefix."
        )


def _check_container(definition: Request) -> None:
    if definition.get("Image") is None:
        raise constraint_error(null_fault("primaryContainer.image"))
    check_image(definition["Image"])
    url, source = definition.get("ModelDataUrl"), definition.get("ModelDataSource")
    if url is not None and source is not None:
        raise validation_error(
            "Both ModelDataUrl and ModelDataSource are given: only one of them is allowed."
        )
    check_source(definition)
    if definition.get("Mode") != "MultiModel":
        return
    if source is not None:
        raise validation_error(
            "ModelDataSource is not supported for multi-model endpoints: use ModelDataUrl."
        )
    if url is None or not url.endswith("/"):
        raise validation_error(
            f"ModelDataUrl \"{url}\" must be an S3 prefix that ends with '/' when Mode is "
            "MultiModel."
        )
