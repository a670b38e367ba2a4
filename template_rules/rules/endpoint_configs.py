"""Rules of endpoint configs: variants, instances, host images, capture, asynchronous output."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from template_rules.hosting import (
    ENDPOINT_CONFIG,
    MODEL,
    all_variants,
    containers,
    is_gpu,
    models_of,
    variants,
)
from template_rules.rule import resource_rule, template_rule
from template_rules.serving_images import cuda_of, driver_needed, driver_of
from template_rules.templates import Assembly, Problem, Resource, metadata
from template_rules.values import at, boolean, fields, is_known, known_text, number, objects


@template_rule("E9121", "Variant without instances, or with several kinds of them")
def variant_instances(assembly: Assembly) -> Iterator[Problem]:
    """A variant has instances, pools of instances or a serverless size, and one of them only."""
    kinds = {"ServerlessConfig", "InstanceType", "InstancePools"}
    for variant in all_variants(assembly):
        given = sorted(kinds & set(variant.properties))
        config, path = variant.config, variant.path
        if len(given) != 1:
            yield config.problem(
                path,
                "a variant has one of InstanceType, InstancePools and ServerlessConfig",
                "keep one of them",
                value=" and ".join(given) or "none",
            )
        counts = {"ServerlessConfig", "InitialInstanceCount", "ManagedInstanceScaling"}
        if not counts & set(variant.properties):
            what = "the variant has no InitialInstanceCount"
            yield config.problem(path, what, "write how many instances it starts with")
        serverless = fields(variant.properties.get("ServerlessConfig"))
        memory = number(serverless.get("MemorySizeInMB"))
        if memory is not None and memory % 1024:
            yield config.problem(
                f"{path}.ServerlessConfig.MemorySizeInMB",
                "the memory is not a whole number of GiB",
                "take one of these",
                value=f"{memory:g}",
                allowed="1024, 2048, 3072, 4096, 5120, 6144",
            )


@resource_rule("E9122", "Two variants of one name, or no weight", ENDPOINT_CONFIG)
def variant_names(config: Resource) -> Iterator[Problem]:
    """Variants have names of their own, and one production variant has a weight."""
    found = variants(config)
    names = Counter(known_text(variant.name) for variant in found)
    for name, count in names.items():
        if name is not None and count > 1:
            what = "two variants have one name"
            yield config.problem("ProductionVariants", what, "rename one", value=name)
    production = [variant for variant in found if not variant.shadow]
    weights = [number(item.properties.get("InitialVariantWeight", 1)) for item in production]
    if weights and all(weight == 0 for weight in weights):
        what = "every InitialVariantWeight is 0, so that no variant gets requests"
        yield config.problem("ProductionVariants", what, "give one variant a weight")
    shadows = len(found) - len(production)
    if shadows and (shadows > 1 or len(production) > 1):
        yield config.problem(
            "ShadowProductionVariants",
            "SageMaker shadows one production variant with one shadow variant",
            "remove the others",
            value=f"{len(production)} production and {shadows} shadow variants",
        )


@template_rule("E9125", "Instance pools that contradict each other or their routing")
def instance_pools(assembly: Assembly) -> Iterator[Problem]:
    """Instance pools are distinct, and routed by least outstanding requests."""
    for variant in all_variants(assembly):
        pools = [pool for _, pool in objects(variant.properties.get("InstancePools"))]
        for key in ("InstanceType", "Priority"):
            values = Counter(str(pool[key]) for pool in pools if is_known(pool.get(key, "\0")))
            for value in (value for value, count in values.items() if count > 1):
                path, what = f"{variant.path}.InstancePools", f"two pools have one {key}"
                yield variant.config.problem(path, what, "change one", value=value)
        strategy = at(variant.properties, "RoutingConfig", "RoutingStrategy")
        if pools and is_known(strategy) and strategy != "LEAST_OUTSTANDING_REQUESTS":
            yield variant.config.problem(
                f"{variant.path}.RoutingConfig.RoutingStrategy",
                "instance pools need another routing strategy",
                "write it",
                value=strategy,
                allowed="LEAST_OUTSTANDING_REQUESTS",
            )


@template_rule(
    "E9126",
    "InferenceAmiVersion that does not fit the image or the instance type",
    source_url="https://docs.aws.amazon.com/sagemaker/latest/dg/inference-gpu-drivers.html",
)
def host_image(assembly: Assembly) -> Iterator[Problem]:
    """The host's NVIDIA driver is new enough for the CUDA in the image; CPUs have no GPU host."""
    for variant in all_variants(assembly):
        ami = variant.properties.get("InferenceAmiVersion")
        path = f"{variant.path}.InferenceAmiVersion"
        types = variant.instance_types
        if types and not any(map(is_gpu, types)) and "-gpu-" in (known_text(ami) or ""):
            what = f"{types[0]} has no NVIDIA GPU, and its host takes no GPU image"
            yield variant.config.problem(path, what, "remove it", value=ami)
        for model in models_of(assembly, variant) if is_known(ami) else ():
            holders = (model.template.document, variant.config.raw, model.raw)
            platforms = (metadata(holder, "platform") for holder in holders)
            platform = next((name for name in platforms if isinstance(name, str)), None)
            for _, container in containers(model):
                cuda = cuda_of(known_text(container.get("Image")) or "", platform)
                needed = None if cuda is None else driver_needed(cuda)
                for name in filter(is_gpu, types):
                    driver = driver_of(name, known_text(ami))
                    if driver is not None and needed is not None and driver < needed:
                        what = (
                            f"the host of {name} has driver {driver}, and CUDA {cuda} "
                            "of the image does not start on it"
                        )
                        yield variant.config.problem(
                            path,
                            what,
                            "name that host image",
                            value="no InferenceAmiVersion" if ami is None else ami,
                            allowed=f"driver {needed} or newer: "
                            "al2023-ami-sagemaker-inference-gpu-4-1 has 580",
                        )


@resource_rule("E9129", "Data capture or asynchronous output without a KMS key", ENDPOINT_CONFIG)
def output_encryption(config: Resource) -> Iterator[Problem]:
    """Captured data and asynchronous responses are encrypted with a customer managed key."""
    capture = config.properties.get("DataCaptureConfig")
    output = config.at("AsyncInferenceConfig.OutputConfig")
    enabled = boolean(fields(capture).get("EnableCapture", True)) is not False
    holders = {"AsyncInferenceConfig.OutputConfig": output}
    holders |= {"DataCaptureConfig": capture} if enabled else {}
    for path, holder in holders.items():
        key = fields(holder).get("KmsKeyId")
        if isinstance(holder, dict) and (key is None or "alias/aws/" in str(key)):
            what = "the data in S3 is not encrypted with a key of yours"
            yield config.problem(f"{path}.KmsKeyId", what, "name the bucket's key", value=key)


@template_rule("E9130", "Variant of a model that the template does not have")
def variant_models(assembly: Assembly) -> Iterator[Problem]:
    """A variant's model is one that the template has, by its name, when it has any."""
    names = assembly.names(MODEL)
    for variant in all_variants(assembly):
        for path, name in variant.model_names:
            if str(name).startswith("arn:"):
                way_out = "write Fn::GetAtt [Model, ModelName]"
                what = "Ref of a model is its ARN, and a name is needed"
                yield variant.config.problem(path, what, way_out, value=name)
            elif names and is_known(name) and assembly.find(name, MODEL) is None:
                what = "no model of this template has the name"
                yield variant.config.problem(path, what, value=name, allowed=names)
