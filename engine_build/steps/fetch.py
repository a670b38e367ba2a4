"""The fetch step: what a store has of the float network, or the pinned source on the disk."""

from __future__ import annotations

from functools import partial

from engine_build.context import BuildContext
from engine_build.sources.source import FetchContext, fetch, source_name
from engine_build.steps.reference import stored_reference
from engine_build.steps.step import BuildState, Step
from engine_build.store import store_at


def run(context: BuildContext, state: BuildState) -> None:
    """Find the float network and the reference, or fetch the source. Raises SourceFault."""
    request = context.request
    network = state.network_store.find("float", request.network_keys["float"])
    if network is not None:
        state.networks["float"] = network
        state.reference = stored_reference(context.stores, request)
        if state.reference is not None:
            return
    fetching = FetchContext(
        root=request.root,
        folder=context.work.scratch("source"),
        runner=context.runner,
        bucket=partial(store_at, region=request.region),
    )
    with context.log.step("fetch", source_name(request.model.source)):
        state.source = fetch(request.model.source, fetching)


FETCH = Step(name="fetch", run=run)
