"""The quantize step: the INT8 network, confirmed on samples that no other step saw."""

from __future__ import annotations

from functools import partial

from engine_build.context import BuildContext
from engine_build.datasets.dataset import Array, Encoder, Samples
from engine_build.errors import InputRefused
from engine_build.evaluation.accuracy import Standard, accuracy, output_sizes
from engine_build.evaluation.answers import rows_by_length
from engine_build.onnx_graph.network_store import Network, Networks, class_indices
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization, format_share
from engine_build.quantization.range_cache import RangeCache
from engine_build.quantization.sensitivity import BATCH, Score, Split, holds_budget
from engine_build.request import BuildRequest


def quantize_network(
    context: BuildContext, networks: Networks, network: Network, encoder: Encoder, reference: Array
) -> Network:
    """Make the INT8 network of the float one, and keep it. Raises SourceFault.

    `reference` holds the source model's answers to the validation samples. A search's choice is
    confirmed on those samples, in ONNX Runtime; while they refuse it, the next smaller share is
    taken.
    """
    quantization, request = quantization_of(context, network, encoder), context.request
    with context.log.step("quantize", quantization.description):
        int8 = quantization.run(context.log.line)
        if quantization.search is not None:
            score = validation_split(request, network).score(reference)
            int8 = quantization.confirm(int8, partial(_holds, context, score, encoder))
        networks.keep(request.network_keys["int8"], int8)
    context.log.line(f"  {format_share(int8.facts, request.opt_shape)}")
    return int8


def quantization_of(context: BuildContext, network: Network, encoder: Encoder) -> Quantization:
    """Return the quantization that a build asks for."""
    request = context.request
    calibration = request.model.engine.calibration
    assert calibration is not None
    return Quantization(
        network=network,
        encoder=encoder,
        method=calibration.method,
        calibration=request.calibration.values,
        shape=request.opt_shape,
        cache=RangeCache(context.stores, context.work.scratch("ranges")),
        folder=context.work.scratch("int8"),
        search=_search_split(request, network),
        progress=context.log.progress,
    )


def validation_split(request: BuildRequest, network: Network) -> Split:
    """Return the samples that neither calibration nor a search has seen."""
    return _split(request, network, request.validation, request.model.accuracy.dataset)


def _search_split(request: BuildRequest, network: Network) -> Split | None:
    spec = request.model.engine.sensitivity_search
    if spec is None or len(request.search) == 0:
        return None
    return _split(request, network, request.search, spec.dataset)


def _split(request: BuildRequest, network: Network, samples: Samples, dataset: str) -> Split:
    """Score by the model's own metric and budget."""
    spec, labels = request.model.accuracy, None
    if spec.metric == "accuracy":
        if samples.labels is None:
            raise InputRefused(
                f"dataset {dataset} has no labels, and metric accuracy needs them; add them."
            )
        labels = class_indices(samples.labels, network, dataset)

    def score(reference: Array) -> Score:
        standard = Standard(
            reference=reference,
            metric=spec.metric,
            budget=spec.budget,
            labels=labels,
            outputs=output_sizes(network.outputs),
        )
        return partial(accuracy, "int8 Q/DQ network", standard=standard)

    return Split(samples=samples.values, score=score)


def _holds(context: BuildContext, score: Score, encoder: Encoder, network: Network) -> bool:
    answer, samples = OrtNetwork(network.path).rows, context.request.validation.values
    record = score(rows_by_length(answer, encoder, samples, BATCH))
    holds = holds_budget(record)
    share = network.facts["int8_share_of_matmul_macs"]
    context.log.line(
        f"  {share:.1%} INT8 on the validation split: mean {record.mean}, worst {record.worst}: "
        f"{'within the budget' if holds else 'refused'}"
    )
    return holds
