"""Rules of endpoint configs and models: host images, keys of what is written, isolation."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.platform import host_images, serving_platforms
from onboarding.text_generation.platforms import generation_platforms
from template_rules.hosting import ENDPOINT_CONFIG, MODEL, all_variants, is_gpu
from template_rules.rule import resource_rule, template_rule
from template_rules.templates import Assembly, Problem, Resource, metadata
from template_rules.values import boolean, fields, is_known, known_text

DRIVERS = {11: 450, 12: 525, 13: 580}
"""The oldest driver that runs each major release of CUDA.

Source: NVIDIA CUDA compatibility guide.
"""
DEFAULT_DRIVERS = {
    **dict.fromkeys(("g4dn", "g5", "p4d", "p4de"), 470),
    **dict.fromkeys(("g6", "p5"), 535),
    **dict.fromkeys(("p5e", "p5en"), 550),
}
"""Driver of a hosting type whose variant names no AMI.

Source: SageMaker docs inference-gpu-drivers, which name no others.
"""


@resource_rule("E9108", "Model without network isolation", MODEL)
def network_isolation(model: Resource) -> Iterator[Problem]:
    """A model's container has no way out to the network."""
    if boolean(model.properties.get("EnableNetworkIsolation", False)) is False:
        yield model.problem(
            "EnableNetworkIsolation",
            "the container reaches the network",
            "set it, or suppress E9108 in the resource's cfn-lint metadata with the reason",
            allowed="true",
        )


@template_rule("E9126", "InferenceAmiVersion that does not fit the image or the instance type")
def host_image(assembly: Assembly) -> Iterator[Problem]:
    """The host's NVIDIA driver is new enough for the CUDA in the image; CPUs have no GPU host."""
    for variant in all_variants(assembly):
        ami = variant.properties.get("InferenceAmiVersion")
        path = f"{variant.path}.InferenceAmiVersion"
        types = variant.instance_types
        if types and not any(map(is_gpu, types)) and "-gpu-" in (known_text(ami) or ""):
            what = f"{types[0]} has no NVIDIA GPU, and its host takes no GPU image"
            yield variant.config.problem(path, what, "remove it", value=ami)
        cuda = _cuda(metadata(variant.config.raw, "platform"))
        needed = 0 if cuda is None else DRIVERS[int(cuda.split(".")[0])]
        for name in filter(is_gpu, types) if is_known(ami) else ():
            driver = _driver(name, known_text(ami))
            if driver is not None and driver < needed:
                yield variant.config.problem(
                    path,
                    f"the host of {name} has driver {driver}, and CUDA {cuda} "
                    "of the image does not start on it",
                    "name that host image",
                    value="no InferenceAmiVersion" if ami is None else ami,
                    allowed=f"driver {needed} or newer: "
                    "al2023-ami-sagemaker-inference-gpu-4-1 has 580",
                )


def _cuda(platform: str | None) -> str | None:
    """Return the CUDA of the images of a platform; None is unknown."""
    known = serving_platforms().get(platform or "") or generation_platforms().get(platform or "")
    return None if known is None else known.cuda


def _driver(instance_type: str, ami: str | None) -> int | None:
    """Return the NVIDIA driver of a host; None is unknown."""
    if ami is not None:
        image = host_images().get(ami)
        return None if image is None else image.driver
    return DEFAULT_DRIVERS.get(instance_type.split(".")[1])


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
