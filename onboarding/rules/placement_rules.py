"""Rules of endpoints on an environment's hardware, platform and servers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from onboarding.document import Place
from onboarding.environment_view import EnvironmentView, serving_server, shared_endpoint_name
from onboarding.fault import Fault, comma_list
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.names import readable_sources
from onboarding.platform import (
    build_route,
    host_images,
    instance_types,
    serving_platforms,
    triton_registries,
)
from onboarding.rules.cases import PlacementCase
from onboarding.source_spec import S3_SCHEME
from onboarding.text_generation.platforms import scale_to_zero_regions
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked
from onboarding.values import Server

_BATCHING = "serving.dynamic_batching"


def gpu_has_tensorrt(case: PlacementCase[Any]) -> Iterator[Fault]:
    """A platform without TensorRT serves CPUs only."""
    if case.instance.is_gpu and case.platform.tensorrt is None:
        rows = serving_platforms().values()
        with_tensorrt = [row.name for row in rows if row.tensorrt is not None]
        yield case.file.at(case.instance_path).fault(
            f"{case.instance.name} has a GPU, and platform {case.platform.name} has no TensorRT",
            value=case.instance.name,
            allowed=f"a CPU instance type, or a platform of {comma_list(with_tensorrt)}",
            way_out="change the instance type for this environment, or the environment's platform, "
            "or leave the model out of it (`models: {except: [NAME]}`)",
        )


def driver_is_new_enough(case: PlacementCase[Any]) -> Iterator[Fault]:
    """An environment names the host image that its platform leaves open, with a driver for CUDA."""
    if not case.instance.is_gpu or case.platform.tensorrt is None:
        return
    named, least = case.environment.spec.inference_ami_version, case.platform.minimum_driver
    name = case.platform.inference_ami_version if named is None else named
    image = host_images().get(name or "")
    if name is None:
        yield case.environment.at("platform").fault(
            f"platform {case.platform.name} leaves the host image open",
            allowed=comma_list(host_images()),
            way_out="add `inference_ami_version:` to the environment",
        )
    elif image is not None and least is not None and image.driver < least:
        enough = [row.name for row in host_images().values() if row.driver >= least]
        yield case.environment.at("inference_ami_version", "platform").fault(
            f"platform {case.platform.name} needs NVIDIA driver {least}, and host image "
            f"{image.name} has {image.driver}",
            value=image.name,
            allowed=comma_list(enough),
            way_out="name a newer host image, or leave it to the platform",
        )


def multi_model_is_tritons(case: PlacementCase[Any]) -> Iterator[Fault]:
    """The Python server has one model, and AWS lists the GPU types that host many."""
    if case.multi_model and case.server == "python":
        yield case.file.at("server").fault(
            "a multi-model endpoint works with Triton only",
            value="server: python",
            allowed="triton",
            way_out="choose triton, or give each model an endpoint of its own",
        )
    if case.multi_model and case.instance.is_gpu and not case.instance.multi_model_gpu:
        rows = instance_types().values()
        yield case.file.at(case.instance_path).fault(
            "AWS does not document multi-model endpoints for this GPU instance type",
            value=case.instance.name,
            allowed=comma_list((row.name for row in rows if row.multi_model_gpu), 20),
            way_out="choose one of these, or give each model an endpoint of its own",
        )


def region_has_image_and_type(case: PlacementCase[Any]) -> Iterator[Fault]:
    """AWS keeps its Triton image in some regions, where GPU builders start from it too.

    SageMaker hosts a type in some regions only; a region without data gets no finding.
    """
    instance, region, known = case.instance, case.environment.spec.region, triton_registries()
    needs_image = case.server == "triton" or instance.is_gpu
    if needs_image and case.platform.base_image is not None and region not in known:
        yield case.environment.at("region").unknown(
            f"AWS's Triton image, which platform {case.platform.name} is built on, has no "
            "known registry in this region",
            region,
            known,
            "choose one of these, or add the region with its source to onboarding/data",
            shown=40,
        )
    if instance.is_missing_in(region):
        rows = instance_types().values()
        there = [row.name for row in rows if row.is_gpu and not row.is_missing_in(region)]
        yield case.file.at(case.instance_path).fault(
            f"SageMaker does not host {instance.name} in region {region}",
            value=instance.name,
            allowed=f"{comma_list(there, 6)}; or a region of "
            f"{comma_list(instance.regions or (), 20)}",
            way_out="choose one of these for this environment, or add the region with its source "
            "to onboarding/data/instance_regions.yaml",
        )


def build_volume_fits_the_instance_storage(case: PlacementCase[Any]) -> Iterator[Fault]:
    """A training job on a type with NVMe storage has that storage, and takes no larger volume."""
    environment, instance = case.environment.spec, case.instance
    route = build_route(
        instance.compute_capability,
        codebuild_gpu=environment.has_codebuild_gpu,
        fleet=environment.gpu_fleet_arn is not None,
    )
    volume, storage = environment.builds.volume_gib, instance.local_nvme_gb
    if route == "training-job" and storage is not None and volume > storage:
        yield case.environment.fault(
            "builds.volume_gib",
            f"is above the {storage} GB of instance storage that a training job on "
            f"{instance.name} has instead of a volume",
            allowed=f"at most {storage}",
            way_out="lower it, or leave it out: it has no effect on types with NVMe storage",
        )


def sources_in_s3_are_readable(view: EnvironmentView) -> Iterator[Fault]:
    """The roles of the builds read one prefix of the environment's own bucket, and named ones."""
    allowed = readable_sources(view.environment.spec)
    for model in view.every_model.values():
        for path, address in _addresses(model):
            if address.startswith(S3_SCHEME) and not address.startswith(allowed):
                places = comma_list(f"{place}KEY" for place in allowed)
                yield model.fault(
                    path,
                    "is in S3 where no role of the builds may read",
                    allowed=f"{places}, or a path relative to the onboarding root",
                    way_out="name the bucket in the environment's `source_buckets`, or copy the "
                    "file to one of these",
                )


def _addresses(
    model: Checked[ModelSpec] | Checked[TextGenerationSpec],
) -> Iterator[tuple[str, str]]:
    """What a build reads of a model, and where its file says so."""
    for key in ("onnx", "checkpoint"):
        if (address := getattr(model.spec.source, key, None)) is not None:
            yield f"source.{key}", address
    if isinstance(model.spec, TextGenerationSpec):
        return
    if model.spec.accuracy.reference is not None:
        yield "accuracy.reference.onnx", model.spec.accuracy.reference.onnx
    for index, plugin in enumerate(model.spec.engine.plugins):
        yield f"engine.plugins[{index}].file", plugin.file


def endpoints_with_other_images_are_there(view: EnvironmentView) -> Iterator[Fault]:
    """A misspelt name would leave its endpoint with the pinned image, and nobody would notice."""
    known = tuple(sorted((*view.own_endpoints, *view.endpoints)))
    for index, name in enumerate(view.environment.spec.images.except_):
        unread = {f"models/{name}", f"endpoints/{name}"} & view.unread
        if name not in known and not unread:
            yield view.environment.at(f"images.except[{index}]").unknown(
                "'images.except' names no endpoint of the environment", name, known, "remove it"
            )


def regions_take_no_instances(view: EnvironmentView) -> Iterator[Fault]:
    """Some regions refuse an endpoint without instances."""
    for endpoint in view.own_endpoints.values():
        if endpoint.spec.is_component:
            yield from zero_in_region(
                endpoint.at("scaling"),
                view.environment.spec.region,
                "raise scaling.min to 1, or add `asynchronous: {}`",
            )


def zero_in_region(place: Place, region: str, way_out: str) -> Iterator[Fault]:
    """Yield the fault of a component scaled to zero where that is refused, or not known to work."""
    accepted, refused = scale_to_zero_regions()
    allowed = f"regions that took them: {', '.join(sorted(accepted))}"
    if region in refused:
        what = f"{region} refused endpoints without instances"
        yield place.fault(what, value=0, allowed=allowed, way_out=way_out)
    elif region not in accepted:
        yield place.fault(
            f"whether {region} takes endpoints without instances is not known",
            value=0,
            allowed=allowed,
            way_out="try it and add the region to `accepted` of "
            f"onboarding/data/generation_platforms.yaml, or {way_out}",
        )


def batching_suits_the_endpoint(view: EnvironmentView) -> Iterator[Fault]:
    """A request that waits for a fuller batch beyond the SLO has missed it before it runs."""
    for name, model in view.models.items():
        endpoint, batching = _serving_endpoint(view, name), model.spec.serving.dynamic_batching
        slo = None if endpoint is None else endpoint.spec.latency_slo_ms
        if slo is not None and batching.max_queue_delay_us > 1000 * slo:
            yield model.fault(
                f"{_BATCHING}.max_queue_delay_us",
                f"is above the endpoint's latency_slo_ms of {slo:g}",
                allowed=f"at most {1000 * slo:.10g} microseconds",
                way_out="lower it, or raise the SLO",
                beside=["endpoint.latency_slo_ms"],
            )
        if _server(view, name) == "python":
            yield from _keys_that_are_tritons(model)


def _keys_that_are_tritons(model: Checked[ModelSpec]) -> Iterator[Fault]:
    """The Python server runs what waits once the engine is idle, and no code of a user's."""
    serving = model.spec.serving
    for key, shown in (("preferred_batch_sizes", "[]"), ("max_queue_delay_us", "0")):
        if getattr(serving.dynamic_batching, key):
            yield model.fault(
                f"{_BATCHING}.{key}",
                "is Triton's: the Python server runs what waits as soon as the engine is idle",
                allowed=f"{key}: {shown}, or server: triton",
                way_out=f"take it out, or write `serving: {{dynamic_batching: {{{key}: {shown}}}}}`"
                " where the environment chooses the server",
                beside=["serving.server"],
            )
    for key in ("preprocessing", "postprocessing"):
        if (spec := getattr(serving, key)) is not None:
            yield model.fault(
                f"serving.{key}",
                "is Triton's, which runs it in a process of its own: the Python server runs no "
                "code of yours",
                value=spec.file,
                allowed="server: triton",
                way_out="serve the model with Triton, also on CPU instance types, or take it out",
                beside=["serving.server"],
            )


def _serving_endpoint(view: EnvironmentView, name: str) -> Checked[EndpointSpec] | None:
    if name in view.own_endpoints:
        return view.own_endpoints[name]
    if name in view.joins:
        return view.own_endpoints.get(view.joins[name].joins)
    return view.endpoints.get(shared_endpoint_name(view.models[name]) or "")


def _server(view: EnvironmentView, name: str) -> Server | None:
    """Return the server that answers for a model; None where a file has faults."""
    shared = shared_endpoint_name(view.models[name])
    if shared is not None:
        return view.endpoints[shared].spec.server if shared in view.endpoints else None
    is_known = name not in view.joins or view.joins[name].joins in view.models
    return serving_server(view, name)[0] if is_known else None


RULES = (
    gpu_has_tensorrt,
    driver_is_new_enough,
    multi_model_is_tritons,
    region_has_image_and_type,
    build_volume_fits_the_instance_storage,
)
VIEW_RULES = (
    sources_in_s3_are_readable,
    batching_suits_the_endpoint,
    endpoints_with_other_images_are_there,
    regions_take_no_instances,
)
