"""Endpoints of a template as SageMaker sees them: which config, which variants, which models, on
what.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from onboarding.platform import InstanceType, instance_types
from template_rules.template import Resource, Template
from template_rules.values import at, fields, is_known, objects, text

ENDPOINT = "AWS::SageMaker::Endpoint"
ENDPOINT_CONFIG = "AWS::SageMaker::EndpointConfig"
MODEL = "AWS::SageMaker::Model"
GPU_FAMILY = re.compile(r"ml\.(g\d|gr\d|p\d)")


@dataclass(frozen=True, eq=False)
class VariantView:
    """One production or shadow variant of an endpoint config; `path` is where it stands."""

    config: Resource
    path: str
    properties: dict[str, Any]
    shadow: bool

    @property
    def name(self) -> Any:
        """Its name, perhaps a marked text; None when it has none."""
        return self.properties.get("VariantName")

    @property
    def instance_types(self) -> tuple[tuple[str, str], ...]:
        """(path, type) of its own instance type and of each of its pools'; unknown ones are left
        out.
        """
        own = [(f"{self.path}.InstanceType", self.properties.get("InstanceType"))]
        pools = objects(self.properties.get("InstancePools"))
        own += [
            (f"{self.path}.InstancePools[{index}].InstanceType", pool.get("InstanceType"))
            for index, pool in pools
        ]
        return tuple((path, each) for path, each in own if isinstance(each, str) and is_known(each))

    @property
    def model_names(self) -> tuple[tuple[str, Any], ...]:
        """(path, name) of its model and of each pool's override."""
        own = [(f"{self.path}.ModelName", self.properties.get("ModelName"))]
        pools = objects(self.properties.get("InstancePools"))
        own += [
            (f"{self.path}.InstancePools[{index}].ModelNameOverride", pool.get("ModelNameOverride"))
            for index, pool in pools
        ]
        return tuple((path, name) for path, name in own if name is not None)

    @property
    def is_serverless(self) -> bool:
        """True for a variant without instances."""
        return "ServerlessConfig" in self.properties


def variants(config: Resource) -> tuple[VariantView, ...]:
    """Production variants, then shadow variants."""
    found = [
        VariantView(config, f"{key}[{index}]", each, key == "ShadowProductionVariants")
        for key in ("ProductionVariants", "ShadowProductionVariants")
        for index, each in objects(config.properties.get(key))
    ]
    return tuple(found)


def all_variants(template: Template) -> Iterator[VariantView]:
    """Variants of every endpoint config of a template."""
    for config in template.of_type(ENDPOINT_CONFIG):
        yield from variants(config)


def config_of(template: Template, endpoint: Resource) -> Resource | None:
    """The endpoint config that an endpoint names, if it is in the template."""
    return template.named(endpoint.properties.get("EndpointConfigName"), ENDPOINT_CONFIG)


def endpoint_named(template: Template, name: Any) -> Resource | None:
    """The endpoint of a name."""
    return template.named(name, ENDPOINT)


def knows_every_endpoint(template: Template) -> bool:
    """True when a template has endpoints and every one has a name that is known, so that another
    name is none of theirs.
    """
    names = template.names(ENDPOINT)
    return bool(names) and all(is_known(name) for name in names)


def variant_named(template: Template, endpoint_name: Any, variant_name: Any) -> VariantView | None:
    """The variant behind an endpoint's name and its own; None when either is not there or not
    known.
    """
    endpoint = endpoint_named(template, endpoint_name)
    config = None if endpoint is None else config_of(template, endpoint)
    found = () if config is None else variants(config)
    return next((each for each in found if each.name == variant_name), None)


def containers(model: Resource) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, container) of every container of a model."""
    primary = model.properties.get("PrimaryContainer")
    if isinstance(primary, dict):
        yield "PrimaryContainer", primary
    for index, each in objects(model.properties.get("Containers")):
        yield f"Containers[{index}]", each


def models_of(template: Template, variant: VariantView) -> tuple[Resource, ...]:
    """The models of a variant that are in the template."""
    found = (template.named(name, MODEL) for _, name in variant.model_names)
    return tuple(each for each in found if each is not None)


def instance_facts(name: str) -> InstanceType | None:
    """What the platform data says of an instance type."""
    return instance_types().get(name)


def is_gpu(name: str) -> bool:
    """True for a type with NVIDIA GPUs, by the platform data or by its family."""
    facts = instance_facts(name)
    return GPU_FAMILY.match(name) is not None if facts is None else facts.is_gpu


def local_storage(name: str) -> bool:
    """True for a type with local NVMe storage, whose host volume refuses a KMS key: GPU families,
    and those with a `d`.
    """
    facts = instance_facts(name)
    family = name.split(".")[1] if name.count(".") > 1 else ""
    return (facts is not None and facts.local_nvme) or re.fullmatch(
        r"[a-z]+\d+[a-z]*d[a-z]*|trn\d.*", family
    ) is not None


def is_asynchronous(template: Template, endpoint: Resource) -> bool | None:
    """Whether an endpoint answers asynchronously; None when its config is not here."""
    config = config_of(template, endpoint)
    return None if config is None else "AsyncInferenceConfig" in config.properties


def roundhouse_metadata(holder: Any) -> dict[str, Any]:
    """Our own metadata of a resource or of a template: `Metadata: {Roundhouse: {...}}`."""
    return fields(at(holder, "Metadata", "Roundhouse"))


def mode_of(model: Resource) -> str:
    """MultiModel when a container says so, else SingleModel."""
    modes = {text(container.get("Mode")) for _, container in containers(model)}
    return "MultiModel" if "MultiModel" in modes else "SingleModel"
