"""The export step: the float network of the source, checked against the samples."""

from __future__ import annotations

from engine_build.context import BuildContext
from engine_build.errors import InputRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import refuse_opset
from engine_build.sources.given_network import check_answers, encoder_for, read_network
from engine_build.steps.dataset_checks import check_calibration_classes, check_samples
from engine_build.steps.step import BuildState, Step


def run(context: BuildContext, state: BuildState) -> None:
    """Make and keep the float network, unless a store had it. Raises BuildError."""
    request, known = context.request, state.networks.get("float")
    network = _network(context, state, known)
    if known is None:
        network = state.network_store.keep(request.network_keys["float"], network)
    if "opset" in network.facts:
        refuse_opset(int(network.facts["opset"]), request.platform, may_be_int8=request.may_be_int8)
    refuse_quantized_network(network, request.model.engine.precision)
    state.networks["float"] = network
    state.encoder = encoder_for(network, request.longest_sequence)
    check_samples(request, network, state.encoder, context.log)
    if request.may_be_int8:
        check_calibration_classes(request, network, state.encoder)


def refuse_quantized_network(network: Network, precision: str) -> None:
    """Refuse a Q/DQ network unless its own types are kept. Raises InputRefused."""
    nodes = network.facts.get("qdq_nodes", 0)
    if nodes and precision != "fp32":
        raise InputRefused(
            f"the source network has {nodes} QuantizeLinear and DequantizeLinear nodes, so it "
            f"computes in INT8 already and is no network of precision {precision}; allowed: fp32, "
            "which keeps the network's own types, or name the float network, which the build "
            "quantizes itself."
        )


def _network(context: BuildContext, state: BuildState, known: Network | None) -> Network:
    """Find or make it; an ONNX file that a store has is run all the same, on samples maybe new."""
    request, log = context.request, context.log
    if state.source is not None and state.source.is_file():
        with log.step("export", f"{state.source.name} is a network already; it is checked"):
            folder = context.work.scratch("float")
            network = read_network(state.source, request, folder) if known is None else known
            return check_answers(network, request)
    if known is not None:
        return known
    from engine_build.sources.export import INTENT, export

    assert state.model is not None and request.longest_sequence is not None
    samples, longest = request.validation.values, request.longest_sequence
    with log.step("export", INTENT):
        network = export(state.model, samples, context.work.scratch("float"), longest=longest)
    log.line(f"  largest difference from PyTorch {network.facts['max_abs_difference']:.2g}")
    return network


EXPORT = Step(name="export", run=run)
