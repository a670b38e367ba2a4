"""The quantize step: the INT8 network, confirmed on samples that no other step saw."""

from __future__ import annotations

from functools import partial

from engine_build.datasets.dataset import Array, Encoder, Samples, rows_of_samples
from engine_build.errors import NothingForInt8
from engine_build.evaluation.accuracy import (
    accuracy,
    format_scores,
    refuse_missing_labels,
    standard_of,
)
from engine_build.evaluation.decision import EIGHT_BITS
from engine_build.machine import return_memory
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization, format_share
from engine_build.quantization.fp8 import Fp8Quantization
from engine_build.quantization.sensitivity import BATCH, Score, Split, holds_budget
from engine_build.request import BuildContext, BuildRequest
from engine_build.sources.given_network import encoder_for
from engine_build.steps.step import BuildState
from onboarding.values import Precision


def run(context: BuildContext, state: BuildState) -> None:
    """Find or make the Q/DQ networks, without which only `auto` goes on. Raises SourceFault."""
    request = context.request
    for precision in EIGHT_BITS:
        if precision not in request.network_keys or precision in state.refused:
            continue
        try:
            known = state.network_store.find(precision, request.network_keys[precision])
            made = _quantized_network(context, state, precision) if known is None else known
            state.networks[precision] = made
        except NothingForInt8 as error:
            if request.model.engine.precision != "auto":
                raise
            context.log.line(f"  {precision} is not tried: {error}")
            state.refused[precision] = str(error)
        return_memory()


def _quantized_network(context: BuildContext, state: BuildState, precision: Precision) -> Network:
    """Make a Q/DQ network of the float one, and keep it. Raises NothingForInt8 and SourceFault.

    A choice of layers is confirmed on the validation samples, in ONNX Runtime; while they refuse
    it, the next smaller share is taken.
    """
    assert state.reference is not None
    request, network = context.request, state.networks["float"]
    if precision == "int8":
        quantization: Quantization | Fp8Quantization = quantization_of(
            context, network, state.encoder
        )
    else:
        quantization = Fp8Quantization(
            network=network,
            encoder=state.encoder,
            calibration=request.calibration.values,
            shape=request.opt_shape,
            folder=context.work.scratch("fp8"),
        )
    with context.log.step("quantize", quantization.description):
        if isinstance(quantization, Fp8Quantization):
            made = quantization.run()
        else:
            made = quantization.run(context.log.line)
            # On samples that neither calibration nor the search has seen.
            dataset = request.model.accuracy.dataset
            score = _split(request, network, request.validation, dataset).score(state.reference)
            made = quantization.confirm(made, partial(_holds, context, score, state.encoder))
        state.network_store.keep(request.network_keys[precision], made)
    context.log.line(f"  {format_share(made.facts, request.opt_shape)}")
    return made


def quantization_of(context: BuildContext, network: Network, encoder: Encoder) -> Quantization:
    """Return the quantization that a build asks for."""
    request, spec = context.request, context.request.model.engine.sensitivity_search
    calibration = request.model.engine.calibration
    assert calibration is not None
    search = None
    if spec is not None and len(request.search):
        search = _split(request, network, request.search, spec.dataset)
    return Quantization(
        network=network,
        encoder=encoder,
        method=calibration.method,
        calibration=request.calibration.values,
        shape=request.opt_shape,
        folder=context.work.scratch("int8"),
        search=search,
        progress=context.log.progress,
    )


def _split(request: BuildRequest, network: Network, samples: Samples, dataset: str) -> Split:
    """Score by the model's own metric and budget."""
    spec = request.model.accuracy
    refuse_missing_labels(spec, samples, dataset)
    encoder = encoder_for(network, request.longest_sequence)

    def score(reference: Array) -> Score:
        standard = standard_of(spec, network, encoder, samples, reference, dataset)
        return partial(accuracy, "int8 Q/DQ network", standard=standard)

    return Split(samples=samples.values, score=score)


def _holds(context: BuildContext, score: Score, encoder: Encoder, network: Network) -> bool:
    answer, samples = OrtNetwork(network.path).rows, context.request.validation.values
    record = score(rows_of_samples(answer, encoder, samples, BATCH))
    holds = holds_budget(record, confirms=True)
    share = network.facts["int8_share_of_matmul_macs"]
    context.log.line(
        f"  {share:.1%} INT8 on the validation split: {format_scores(record)}: "
        f"{'within the budget' if holds else 'refused'}"
    )
    return holds
