"""The fetch step: what a store has of the float network, or the pinned source on the disk."""

from __future__ import annotations

from functools import partial

from engine_build.context import BuildContext
from engine_build.sources.bucket_checkpoint import BucketAccess
from engine_build.sources.plugin_source import fetch_plugin
from engine_build.sources.private import PrivateSources, secret_reader
from engine_build.sources.source import FetchContext, fetch, source_name
from engine_build.steps.reference import stored_reference
from engine_build.steps.step import BuildState, Step
from engine_build.store import store_at
from onboarding.names import source_copy_path
from onboarding.source_spec import SourceSpec


def is_of_another(address: str, place: str) -> bool:
    """Return whether a source lies outside the store that a build publishes to."""
    return not address.startswith(f"{place}/")


def run(context: BuildContext, state: BuildState) -> None:
    """Find the float network and the reference, or fetch the source. Raises SourceFault."""
    request = context.request
    if request.plugins:
        fetch_plugins(context)
    network = state.network_store.find("float", request.network_keys["float"])
    if network is not None:
        state.networks["float"] = network
        state.reference = stored_reference(context.stores, request)
        # A program is exported of the source itself.
        if state.reference is not None and request.library != "pytorch":
            return
    with context.log.step("fetch", source_name(request.model.source)):
        state.source = fetch(request.model.source, fetch_context(context, "source"))
    reference = request.model.accuracy.reference
    if reference is not None:
        source = SourceSpec(onnx=reference.onnx, sha256=reference.sha256)
        with context.log.step("fetch", f"{reference.onnx}, the accuracy's reference"):
            state.reference_source = fetch(source, fetch_context(context, "reference-source"))


def fetch_plugins(context: BuildContext) -> None:
    """Keep the libraries of custom operators where `context.plugins` has them.

    Raises SourceFault.
    """
    request, fetching = context.request, fetch_context(context, "plugins")
    names = [f"{plugin.name} ({', '.join(plugin.operators)})" for plugin in request.plugins]
    with context.log.step("fetch plugins", ", ".join(names)):
        for plugin in request.plugins:
            path = fetch_plugin(plugin, request.runtime.version, fetching)
            context.work_store.upload(path, source_copy_path(plugin.sha256, plugin.name))


def fetch_context(context: BuildContext, folder: str) -> FetchContext:
    """Return what fetching into a scratch folder of that name needs."""
    request = context.request
    return FetchContext(
        root=request.root,
        folder=context.work.scratch(folder),
        runner=context.runner,
        access=BucketAccess(
            bucket=partial(store_at, region=request.region),
            copies=context.publish_to,
            keeps=lambda address: is_of_another(address, context.destination.place),
        ),
        private=PrivateSources(spec=request.source_secrets, read=secret_reader(request.region)),
    )


FETCH = Step(name="fetch", run=run)
