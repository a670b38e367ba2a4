"""The engine of a baseline: a program of the source model, or a network as it stands."""

from __future__ import annotations

from engine_build.context import BuildContext
from engine_build.errors import SourceFault
from engine_build.evaluation.decision import Candidate
from engine_build.onnx_graph.external_data import copy_network
from engine_build.quantization.given_qdq import given_precision
from engine_build.steps.step import BuildState
from onboarding.keys import chosen_network


def baseline_candidate(context: BuildContext, state: BuildState) -> Candidate:
    """Return the one candidate of a baseline, in the precision that its file asks for.

    Nothing is compiled: the server's library does it when it loads the engine. Raises SourceFault.
    """
    if context.request.library == "pytorch":
        return _program(context, state)
    requested = context.request.model.engine.precision
    given = given_precision(state.networks)
    precision = "fp32" if requested == "auto" else requested
    precision = precision if given is None else given
    network = state.half_networks.get(precision, state.networks.get(chosen_network(precision)))
    assert network is not None
    path = context.work.scratch("engines") / precision / "model.onnx"
    path.parent.mkdir()
    copy_network(network.path, path)
    return Candidate(precision=precision, path=path)


def _program(context: BuildContext, state: BuildState) -> Candidate:
    """Export the source model by torch.export, and compare the program with it."""
    # torch takes seconds to import; other builds of known networks never need it.
    from engine_build.sources.export import comparison_feeds
    from engine_build.sources.image_model import ImageModel
    from engine_build.sources.program import write_program

    request, model = context.request, state.model
    if model is None:
        raise SourceFault(
            "an ONNX file has no model in PyTorch, which runtime "
            f"{request.runtime.name} needs; choose onnxruntime, onnxruntime-cuda or tensorrt."
        )
    samples, longest = request.validation.values, request.longest_sequence
    if isinstance(model, ImageModel):
        batches = (samples[:1], samples[-2:], samples[:7], samples[-16:])
        feeds = list(map(model.encoder.feed, batches))
    else:
        assert longest is not None
        feeds = comparison_feeds(state.encoder, samples, longest)  # type: ignore[arg-type]
    path = context.work.scratch("engines") / "model.pt2"
    difference = write_program(model, feeds, path, longest=longest)
    model.release()
    context.log.line(f"  largest difference from PyTorch {difference:.2g}")
    return Candidate(precision="fp32", path=path)
