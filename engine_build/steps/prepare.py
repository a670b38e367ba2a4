"""The steps on the CPU that every GPU shares, and what they hand on."""

from __future__ import annotations

from dataclasses import dataclass

from engine_build.context import BuildContext
from engine_build.datasets.dataset import Array, Encoder
from engine_build.errors import NothingForInt8
from engine_build.evaluation.runtimes import Source
from engine_build.machine import return_memory
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.calibrate import calibrate_cache
from engine_build.steps.export import EXPORT
from engine_build.steps.fetch import FETCH
from engine_build.steps.load import LOAD
from engine_build.steps.quantize import quantize_network
from engine_build.steps.reference import REFERENCE
from engine_build.steps.step import BuildState, Step, applicable


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The networks, the samples' encoder, and what the source model itself answers."""

    networks: dict[str, Network]
    encoder: Encoder
    reference: Array
    source: Source | None
    """The source model in PyTorch; None when this build had no need to load it."""
    without_int8: str | None = None
    """Why `auto` cannot try INT8, when it cannot."""


def prepare(context: BuildContext) -> Prepared:
    """Make or find every network of a request. Raises BuildError."""
    state = BuildState(context)
    for step in applicable(NETWORK_STEPS, context):
        step.run(context, state)
    return prepared_parts(state)


def prepared_parts(state: BuildState) -> Prepared:
    """Return what the network steps made."""
    assert state.reference is not None
    return Prepared(
        networks=state.networks,
        encoder=state.encoder,
        reference=state.reference,
        source=state.model,
        without_int8=state.without_int8,
    )


def quantize(context: BuildContext, state: BuildState) -> None:
    """Find or make the Q/DQ network, without which only `auto` goes on. Raises SourceFault."""
    networks, reference = state.network_store, state.reference
    assert reference is not None
    int8 = networks.find("int8", context.request.network_keys["int8"])
    try:
        if int8 is None:
            float_network = state.networks["float"]
            int8 = quantize_network(context, networks, float_network, state.encoder, reference)
        state.networks["int8"] = int8
    except NothingForInt8 as error:
        if context.request.model.engine.precision != "auto":
            raise
        context.log.line(f"  int8 is not tried: {error}")
        state.without_int8 = str(error)
    return_memory()


def calibrate(context: BuildContext, state: BuildState) -> None:
    """Find or make the calibration cache. Raises InputRefused and NetworkRefused."""
    calibrate_cache(context, state.networks["float"], state.encoder)


def _has_int8(context: BuildContext, mode: str) -> bool:
    return context.request.may_be_int8 and context.request.quantization == mode


NETWORK_STEPS = (
    FETCH,
    LOAD,
    EXPORT,
    REFERENCE,
    Step(name="quantize", run=quantize, applies=lambda context: _has_int8(context, "explicit")),
    Step(
        name="calibrate",
        run=calibrate,
        applies=lambda context: _has_int8(context, "calibration-cache"),
    ),
)
