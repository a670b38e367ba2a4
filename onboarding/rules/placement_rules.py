"""Rules of an endpoint on an environment's platform: TensorRT, driver, region, multi-model."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.fault import Fault
from onboarding.nearest import comma_list, did_you_mean
from onboarding.platform import (
    build_route,
    host_images,
    instance_types,
    serving_platforms,
    triton_registries,
)
from onboarding.rules.rule import PlacementCase, rule, rules_of


@rule()
def gpu_has_tensorrt(case: PlacementCase) -> Iterator[Fault]:
    """A platform without TensorRT serves CPUs only."""
    if case.instance.is_gpu and case.platform.tensorrt is None:
        with_tensorrt = [
            row.name for row in serving_platforms().values() if row.tensorrt is not None
        ]
        yield case.document.at(*case.instance_path).fault(
            f"{case.instance.name} has a GPU, and platform {case.platform.name} has no TensorRT",
            value=case.instance.name,
            allowed=f"a CPU instance type, or a platform of {comma_list(with_tensorrt)}",
            way_out="change the instance type for this environment, or the environment's platform, "
            "or leave the model out of it (`models: {except: [NAME]}`)",
        )


@rule("inference_ami_version")
def host_image_is_named(case: PlacementCase) -> Iterator[Fault]:
    """An environment names the host image that its platform leaves open."""
    if case.instance.is_gpu and case.platform.tensorrt is not None and _host_image(case) is None:
        yield case.environment_document.at("platform").fault(
            f"platform {case.platform.name} leaves the host image open",
            allowed=comma_list(host_images()),
            way_out="add `inference_ami_version:` to the environment",
        )


@rule("inference_ami_version")
def driver_is_new_enough(case: PlacementCase) -> Iterator[Fault]:
    """CUDA refuses to start on an older driver."""
    name, least = _host_image(case), case.platform.minimum_driver
    image = None if name is None else host_images().get(name)
    if case.instance.is_gpu and image is not None and least is not None and image.driver < least:
        enough = [row.name for row in host_images().values() if row.driver >= least]
        yield case.environment_document.at_change(("inference_ami_version",), ("platform",)).fault(
            f"platform {case.platform.name} needs NVIDIA driver {least}, and host image "
            f"{image.name} has {image.driver}",
            value=image.name,
            allowed=comma_list(enough),
            way_out="name a newer host image, or leave it to the platform",
        )


@rule("region")
def region_has_the_triton_image(case: PlacementCase) -> Iterator[Fault]:
    """AWS keeps its Triton image in some regions; GPU builders start from it too."""
    image, region, known = case.platform.base_image, case.environment.region, triton_registries()
    needs_it = case.server == "triton" or case.instance.is_gpu
    if needs_it and image is not None and region not in known:
        yield case.environment_document.at("region").fault(
            f"AWS's Triton image, which platform {case.platform.name} is built on, has no "
            "known registry in this region",
            value=region,
            allowed=comma_list(known, 40),
            way_out=did_you_mean(
                region,
                known,
                "choose one of these, or add the region with its source to onboarding/data",
            ),
        )


@rule()
def gpu_multi_model_is_triton(case: PlacementCase) -> Iterator[Fault]:
    """SageMaker's multi-model contract for other containers is for CPU."""
    if case.multi_model and case.instance.is_gpu and case.server == "python":
        yield case.document.at_change(case.server_path, case.instance_path).fault(
            f"a multi-model endpoint on a GPU ({case.instance.name}) works with Triton only",
            value="server: python",
            allowed="triton",
            way_out="choose triton, a CPU instance type, or an endpoint of the model's own",
        )


@rule()
def gpu_multi_model_is_documented(case: PlacementCase) -> Iterator[Fault]:
    """AWS lists the GPU types that host many models."""
    if case.multi_model and case.instance.is_gpu and not case.instance.multi_model_gpu:
        yield case.document.at(*case.instance_path).fault(
            "AWS does not document multi-model endpoints for this GPU instance type",
            value=case.instance.name,
            allowed=comma_list(
                (row.name for row in instance_types().values() if row.multi_model_gpu), 20
            ),
            way_out="choose one of these, or give each model an endpoint of its own",
        )


@rule("region")
def region_has_the_instance_type(case: PlacementCase) -> Iterator[Fault]:
    """SageMaker hosts a type in some regions only; a region without data gets no finding."""
    instance, region = case.instance, case.environment.region
    if instance.is_missing_in(region):
        family = instance_types().values()
        there = [row.name for row in family if row.is_gpu and not row.is_missing_in(region)]
        yield case.document.at(*case.instance_path).fault(
            f"SageMaker does not host {instance.name} in region {region}",
            value=instance.name,
            allowed=f"{comma_list(there, 6)}; or a region of "
            f"{comma_list(instance.regions or (), 20)}",
            way_out="choose one of these for this environment, or add the region with its "
            "source to "
            "onboarding/data/instance_regions.yaml",
        )


@rule("region", "builds", "gpu_fleet_arn")
def build_volume_fits_the_instance_storage(case: PlacementCase) -> Iterator[Fault]:
    """A training job on a type with NVMe storage has that storage, and takes no larger volume."""
    environment, instance = case.environment, case.instance
    route = build_route(
        instance.compute_capability,
        codebuild_gpu=environment.has_codebuild_gpu,
        fleet=environment.gpu_fleet_arn is not None,
    )
    volume, storage = environment.builds.volume_gib, instance.local_nvme_gb
    if route == "training-job" and storage is not None and volume > storage:
        yield case.environment_document.at("builds", "volume_gib").fault(
            f"'builds.volume_gib' is above the {storage} GB of instance storage that a "
            "training job "
            f"on {instance.name} has instead of a volume",
            value=volume,
            allowed=f"at most {storage}",
            way_out="lower it, or leave it out: it has no effect on types with NVMe storage",
        )


def _host_image(case: PlacementCase) -> str | None:
    named = case.environment.inference_ami_version
    return case.platform.inference_ami_version if named is None else named


RULES = rules_of(globals())
