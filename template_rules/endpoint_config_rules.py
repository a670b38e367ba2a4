"""Rules of endpoint configs: variants, instance types, host images, keys, capture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from onboarding.nearest import nearest
from template_rules.catalogue import hosting_regions
from template_rules.finding import Problem
from template_rules.hosting import (
    ENDPOINT_CONFIG,
    MODEL,
    all_variants,
    containers,
    is_gpu,
    local_storage,
    models_of,
    roundhouse_metadata,
    variants,
)
from template_rules.rule import rule
from template_rules.serving_images import cuda_of, driver_needed, driver_of
from template_rules.template import Template
from template_rules.values import at, boolean, is_known, number, objects, shown, surely_has, text

INSTANCE_PROPERTIES = (
    "InstanceType",
    "InitialInstanceCount",
    "InstancePools",
    "InferenceAmiVersion",
    "VolumeSizeInGB",
)


@rule(
    "RH120",
    "an instance type is a hosting type that some region offers, and this stack's region does",
)
def instance_type_not_offered(template: Template) -> Iterator[Problem]:
    offered = hosting_regions()
    for variant in all_variants(template):
        for path, name in variant.instance_types:
            problem = partial(Problem, resource=variant.config.logical_id, path=path, value=name)
            region = template.stack.region
            if name not in offered:
                match = nearest(name, offered)
                way_out = "take a hosting type" if match is None else f"did you mean {match}?"
                yield problem(what="the instance type is unknown", way_out=way_out)
            elif not offered[name]:
                yield problem(
                    what="no region offers the instance type: it is retired, or not yet sold",
                    way_out="take another",
                )
            elif region is not None and region not in offered[name]:
                allowed = ", ".join(offered[name])
                what = f"region {region} does not offer the instance type"
                yield problem(
                    what=what, allowed=allowed, way_out="take another type, or another region"
                )


@rule(
    "RH121",
    "a variant has instances, a serverless size or inference components' instances, and one of them only",
)
def variant_without_instances(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        where = partial(Problem, resource=variant.config.logical_id, path=variant.path)
        perhaps = set(variant.properties)
        there = {name for name in perhaps if surely_has(variant.properties, name)}
        both = [name for name in INSTANCE_PROPERTIES if name in there]
        if "ServerlessConfig" in there and both:
            yield where(
                what=f"a serverless variant has no {' or '.join(both)}", way_out="take them out"
            )
        elif not perhaps & {"ServerlessConfig", "InstanceType", "InstancePools"}:
            yield where(
                what="the variant has no instance type",
                way_out="write InstanceType and InitialInstanceCount",
            )
        elif {"InstanceType", "InstancePools"} <= there:
            yield where(
                what="the variant has both InstanceType and InstancePools",
                way_out="keep one of them",
            )
        elif not perhaps & {"ServerlessConfig", "InitialInstanceCount", "ManagedInstanceScaling"}:
            yield where(
                what="the variant says no InitialInstanceCount",
                way_out="write how many instances it starts with",
            )


@rule("RH122", "variants of an endpoint config have names of their own")
def variant_named_twice(template: Template) -> Iterator[Problem]:
    for config in template.of_type(ENDPOINT_CONFIG):
        names = Counter(name for each in variants(config) if (name := text(each.name)) is not None)
        for name, count in names.items():
            if count > 1:
                what = "two variants have one name"
                yield Problem(
                    resource=config.logical_id,
                    path="ProductionVariants",
                    what=what,
                    value=name,
                    way_out="rename one",
                )


@rule("RH123", "some production variant has a weight above zero")
def no_variant_has_weight(template: Template) -> Iterator[Problem]:
    for config in template.of_type(ENDPOINT_CONFIG):
        weights = [
            number(each.properties.get("InitialVariantWeight", 1))
            for each in variants(config)
            if not each.shadow
        ]
        if weights and all(weight == 0 for weight in weights):
            yield Problem(
                resource=config.logical_id,
                path="ProductionVariants[0].InitialVariantWeight",
                what="every weight is zero, so that no variant answers",
                value=", ".join("0" for _ in weights),
                allowed="a sum above 0",
                way_out="give one variant a weight",
            )


@rule("RH124", "a shadow variant stands beside exactly one production variant, alone")
def shadow_beside_several(template: Template) -> Iterator[Problem]:
    for config in template.of_type(ENDPOINT_CONFIG):
        shadows = [each for each in variants(config) if each.shadow]
        production = [each for each in variants(config) if not each.shadow]
        if shadows and (len(shadows) > 1 or len(production) > 1):
            yield Problem(
                resource=config.logical_id,
                path="ShadowProductionVariants",
                what="SageMaker shadows one production variant with one other",
                value=f"{len(production)} production and {len(shadows)} shadow variants",
                allowed="1 and 1",
                way_out="take the others out",
            )


@rule("RH125", "instance pools are distinct, and routed by least outstanding requests")
def pools_contradict_themselves(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        pools = list(objects(variant.properties.get("InstancePools")))
        where = f"{variant.path}.InstancePools"
        for key in ("InstanceType", "Priority"):
            values = Counter(
                str(pool[key]) for _, pool in pools if key in pool and is_known(pool[key])
            )
            for value in (value for value, count in values.items() if count > 1):
                what = f"two pools have one {key}"
                yield Problem(
                    resource=variant.config.logical_id,
                    path=where,
                    what=what,
                    value=value,
                    way_out="change one",
                )
        strategy = at(variant.properties, "RoutingConfig", "RoutingStrategy")
        if (
            pools
            and (strategy is None or is_known(strategy))
            and strategy != "LEAST_OUTSTANDING_REQUESTS"
        ):
            yield Problem(
                resource=variant.config.logical_id,
                path=f"{variant.path}.RoutingConfig.RoutingStrategy",
                what="instance pools need another routing",
                value="nothing" if strategy is None else shown(strategy),
                allowed="LEAST_OUTSTANDING_REQUESTS",
                way_out="write it",
            )


@rule("RH126", "the host's driver is new enough for the CUDA in the image")
def host_image_too_old(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        ami = variant.properties.get("InferenceAmiVersion")
        types = [name for _, name in variant.instance_types if is_gpu(name)]
        for model in models_of(template, variant) if ami is None or is_known(ami) else ():
            holders = (template.document, variant.config.raw, model.raw)
            platform = next(
                (
                    each
                    for holder in holders
                    if (each := roundhouse_metadata(holder).get("platform"))
                ),
                None,
            )
            for _, container in containers(model):
                uri = text(container.get("Image"))
                cuda = (
                    None
                    if uri is None
                    else cuda_of(uri, platform if isinstance(platform, str) else None)
                )
                needed = None if cuda is None else driver_needed(cuda)
                drivers = {name: driver_of(name, text(ami)) for name in types}
                old = {
                    name: driver
                    for name, driver in drivers.items()
                    if driver is not None and needed is not None and driver < needed
                }
                for name, driver in old.items():
                    given = "no InferenceAmiVersion" if ami is None else str(ami)
                    yield Problem(
                        resource=variant.config.logical_id,
                        path=f"{variant.path}.InferenceAmiVersion",
                        what=f"the host of {name} has driver {driver}, and CUDA {cuda} of the image does not start on it",
                        value=given,
                        allowed=f"driver {needed} or newer: al2023-ami-sagemaker-inference-gpu-4-1 has 580",
                        way_out="name that host image",
                    )


@rule("RH127", "a host image is asked for on a GPU type only")
def host_image_without_gpu(template: Template) -> Iterator[Problem]:
    for variant in all_variants(template):
        ami = text(variant.properties.get("InferenceAmiVersion"))
        names = [name for _, name in variant.instance_types]
        if ami is not None and "-gpu-" in ami and names and not any(is_gpu(name) for name in names):
            yield Problem(
                resource=variant.config.logical_id,
                path=f"{variant.path}.InferenceAmiVersion",
                what=f"{names[0]} has no NVIDIA GPU, and its host takes no GPU image",
                value=ami,
                way_out="take it out",
            )


@rule("RH128", "a KMS key for host volumes is named only where the host takes one")
def key_on_local_storage(template: Template) -> Iterator[Problem]:
    for config in template.of_type(ENDPOINT_CONFIG):
        local = sorted(
            {
                name
                for each in variants(config)
                for _, name in each.instance_types
                if local_storage(name)
            }
        )
        if surely_has(config.properties, "KmsKeyId") and local:
            yield Problem(
                resource=config.logical_id,
                path="KmsKeyId",
                what=f"{', '.join(local)} has local NVMe storage, and CreateEndpointConfig refuses a key there",
                value=shown(config.properties["KmsKeyId"]),
                way_out="take KmsKeyId out; that storage is encrypted by its hardware",
            )


@rule("RH129", "captured requests and answers are encrypted with a key of ours", "warning")
def capture_without_key(template: Template) -> Iterator[Problem]:
    for config in template.of_type(ENDPOINT_CONFIG):
        capture = config.properties.get("DataCaptureConfig")
        if (
            isinstance(capture, dict)
            and boolean(capture.get("EnableCapture", True)) is not False
            and "KmsKeyId" not in capture
        ):
            what = "captured data is written without a KMS key"
            yield Problem(
                resource=config.logical_id,
                path="DataCaptureConfig.KmsKeyId",
                what=what,
                way_out="name the bucket's key",
            )


@rule("RH130", "a variant's model is one that the template makes, when it makes any")
def variant_of_another_model(template: Template) -> Iterator[Problem]:
    names = template.names(MODEL)
    if not names or not all(is_known(name) for name in names):
        return
    for variant in all_variants(template):
        for path, name in variant.model_names:
            if text(name) is not None and template.named(name, MODEL) is None:
                allowed = ", ".join(sorted(names))
                what = "the variant names a model that this template does not make"
                yield Problem(
                    resource=variant.config.logical_id,
                    path=path,
                    what=what,
                    value=name,
                    allowed=allowed,
                    way_out="name one of these",
                )
