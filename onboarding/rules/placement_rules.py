"""Rules of endpoints on an environment's hardware, platform and servers."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.document import KeyPath, Place
from onboarding.environment_view import EnvironmentView, serving_server, shared_endpoint_name
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec, ModelSpec
from onboarding.names import readable_sources
from onboarding.nearest import comma_list
from onboarding.platform import (
    build_route,
    host_images,
    instance_types,
    serving_platforms,
    triton_registries,
)
from onboarding.rules.rule import PlacementCase, rule
from onboarding.source_access import S3_SCHEME
from onboarding.text_generation.platforms import scale_to_zero_regions
from onboarding.text_generation.spec import TextGenerationSpec
from onboarding.validation import Checked
from onboarding.values import Server


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
        yield case.environment_document.at("region").unknown(
            f"AWS's Triton image, which platform {case.platform.name} is built on, has no "
            "known registry in this region",
            region,
            known,
            "choose one of these, or add the region with its source to onboarding/data",
            shown=40,
        )


@rule()
def multi_model_is_triton(case: PlacementCase) -> Iterator[Fault]:
    """The Python server has one model."""
    if case.multi_model and case.server == "python":
        yield case.document.at_change(case.server_path).fault(
            "a multi-model endpoint works with Triton only",
            value="server: python",
            allowed="triton",
            way_out="choose triton, or give each model an endpoint of its own",
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


_BATCHING: KeyPath = ("serving", "dynamic_batching")


def sources_in_s3_are_readable(view: EnvironmentView) -> Iterator[Fault]:
    """The roles of the builds read one prefix of the environment's own bucket, and named ones."""
    if not {"name", "account", "region", "source_buckets"} <= view.environment.sections:
        return
    allowed = readable_sources(view.environment.spec)
    for model in view.every_model.values():
        for path, address in _addresses(model):
            if address.startswith(S3_SCHEME) and not address.startswith(allowed):
                places = f"{comma_list(f'{place}KEY' for place in allowed)}"
                yield model.document.at(*path).fault(
                    f"'{'.'.join(map(str, path))}' is in S3 where no role of the builds may read",
                    value=address,
                    allowed=f"{places}, or a path relative to the onboarding root",
                    way_out="name the bucket in the environment's `source_buckets`, or copy the "
                    "file to one of these",
                )


def _addresses(
    model: Checked[ModelSpec] | Checked[TextGenerationSpec],
) -> Iterator[tuple[KeyPath, str]]:
    """What a build reads of a model, and where its file says so."""
    if "source" in model.sections:
        for key in ("onnx", "checkpoint"):
            if (address := getattr(model.spec.source, key, None)) is not None:
                yield ("source", key), address
    if isinstance(model.spec, TextGenerationSpec):
        return
    reference = model.spec.accuracy.reference if "accuracy" in model.sections else None
    if reference is not None:
        yield ("accuracy", "reference", "onnx"), reference.onnx
    if "engine" in model.sections:
        for index, plugin in enumerate(model.spec.engine.plugins):
            yield ("engine", "plugins", index, "file"), plugin.file


def endpoints_with_other_images_are_there(view: EnvironmentView) -> Iterator[Fault]:
    """A misspelt name would leave its endpoint with the pinned image, and nobody would notice."""
    if "images" not in view.environment.sections:
        return
    known = tuple(sorted((*view.own_endpoints, *view.endpoints)))
    for index, name in enumerate(view.environment.spec.images.except_):
        unread = {f"models/{name}", f"endpoints/{name}"} & view.unread
        if name not in known and not unread:
            yield view.environment.document.at("images", "except", index).unknown(
                "'images.except' names no endpoint of the environment", name, known, "remove it"
            )


def regions_take_no_instances(view: EnvironmentView) -> Iterator[Fault]:
    """Some regions refuse an endpoint without instances."""
    if "region" not in view.environment.sections:
        return
    for endpoint in view.own_endpoints.values():
        if {"scaling", "asynchronous"} <= endpoint.sections and endpoint.spec.is_component:
            place, region = endpoint.document.at("scaling"), view.environment.spec.region
            yield from zero_in_region(
                place, region, "raise scaling.min to 1, or add `asynchronous: {}`"
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


def queue_delays_are_within_the_slo(view: EnvironmentView) -> Iterator[Fault]:
    """A request that waits for a fuller batch beyond the SLO has missed it before it runs."""
    for name, model in view.models.items():
        endpoint = _serving_endpoint(view, name)
        if endpoint is None or "serving" not in model.sections:
            continue
        slo = endpoint.spec.latency_slo_ms if "latency_slo_ms" in endpoint.sections else None
        delay = model.spec.serving.dynamic_batching.max_queue_delay_us
        if slo is not None and delay > 1000 * slo:
            path = ("serving", "dynamic_batching", "max_queue_delay_us")
            yield model.document.at_change(path, ("endpoint", "latency_slo_ms")).fault(
                f"'{'.'.join(path)}' is above the endpoint's latency_slo_ms of {slo:g}",
                value=delay,
                allowed=f"at most {1000 * slo:.10g} microseconds",
                way_out="lower it, or raise the SLO",
            )


def python_server_honours_the_serving_keys(view: EnvironmentView) -> Iterator[Fault]:
    """The Python server waits for no fuller batch, and runs what waits once the engine is idle."""
    for name, model in view.models.items():
        if "serving" in model.sections and _server(view, name) == "python":
            yield from _waits_that_are_tritons(model)
            yield from _processing_that_is_tritons(model)


def _waits_that_are_tritons(model: Checked[ModelSpec]) -> Iterator[Fault]:
    batching = model.spec.serving.dynamic_batching
    for key, value, none in (
        ("preferred_batch_sizes", list(batching.preferred_batch_sizes), []),
        ("max_queue_delay_us", batching.max_queue_delay_us, 0),
    ):
        if value != none:
            yield model.document.at_change((*_BATCHING, key), ("serving", "server")).fault(
                f"'{'.'.join(map(str, _BATCHING))}.{key}' is Triton's: the Python server runs "
                "what waits as soon as the engine is idle",
                value=value,
                allowed=f"{key}: {none}, or server: triton",
                way_out=f"take it out, or write `serving: {{dynamic_batching: {{{key}: {none}}}}}` "
                "where the environment chooses the server",
            )


def _processing_that_is_tritons(model: Checked[ModelSpec]) -> Iterator[Fault]:
    serving = model.spec.serving
    for key, spec in (
        ("preprocessing", serving.preprocessing),
        ("postprocessing", serving.postprocessing),
    ):
        if spec is not None:
            yield model.document.at_change(("serving", key), ("serving", "server")).fault(
                f"'serving.{key}' is Triton's, which runs it in a process of its own: the Python "
                "server runs no code of yours",
                value=spec.file,
                allowed="server: triton",
                way_out="serve the model with Triton, also on CPU instance types, or take it out",
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
        endpoint = view.endpoints.get(shared)
        return endpoint.spec.server if endpoint and "server" in endpoint.sections else None
    first = view.models.get(view.joins[name].joins if name in view.joins else name)
    if first is None or "serving" not in first.sections:
        return None
    return serving_server(view, name)[0]
