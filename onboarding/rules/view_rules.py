"""Rules of one environment's models: sources that its roles may read, delays within the SLO."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.environment_view import EnvironmentView, shared_endpoint_name
from onboarding.fault import Fault
from onboarding.model_spec import EndpointSpec
from onboarding.names import ONNX_PREFIX, artifact_bucket
from onboarding.nearest import comma_list, did_you_mean
from onboarding.validation import Checked


def onnx_sources_are_readable(view: EnvironmentView) -> Iterator[Fault]:
    """The roles of the builds read one prefix of the environment's own bucket alone."""
    if not {"name", "account", "region"} <= view.environment.sections:
        return
    allowed = f"s3://{artifact_bucket(view.environment.spec)}/{ONNX_PREFIX}/"
    for model in view.models.values():
        onnx = model.spec.source.onnx if "source" in model.sections else None
        if onnx is not None and onnx.startswith("s3://") and not onnx.startswith(allowed):
            yield model.document.at("source", "onnx").fault(
                "'source.onnx' is in S3 where no role of the builds may read",
                value=onnx,
                allowed=f"{allowed}KEY, or a path relative to the onboarding root",
                way_out="copy the file there and override `source.onnx` in the environment's "
                "file, or "
                "commit it",
            )


def endpoints_with_other_images_are_there(view: EnvironmentView) -> Iterator[Fault]:
    """A misspelt name would leave its endpoint with the pinned image, and nobody would notice."""
    if "images" not in view.environment.sections:
        return
    known = tuple(sorted((*view.own_endpoints, *view.endpoints)))
    for index, name in enumerate(view.environment.spec.images.except_):
        unread = {f"models/{name}", f"endpoints/{name}"} & view.unread
        if name not in known and not unread:
            yield view.environment.document.at("images", "except", index).fault(
                "'images.except' names no endpoint of the environment",
                value=name,
                allowed=comma_list(known),
                way_out=did_you_mean(name, known, "remove it"),
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


def _serving_endpoint(view: EnvironmentView, name: str) -> Checked[EndpointSpec] | None:
    if name in view.own_endpoints:
        return view.own_endpoints[name]
    if name in view.joins:
        return view.own_endpoints.get(view.joins[name].joins)
    return view.endpoints.get(shared_endpoint_name(view.models[name]) or "")
