"""The steps on the CPU that every GPU shares: fetch, export, quantize.

What a store has is not made again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from engine_build.context import BuildContext
from engine_build.datasets.encoder import Encoder, by_length
from engine_build.datasets.feed import Array
from engine_build.datasets.sample_checks import check_calibration_classes, check_samples
from engine_build.errors import NothingForInt8, SourceFault
from engine_build.evaluation.answers import rows_by_length
from engine_build.evaluation.runtimes import Source
from engine_build.machine import return_memory
from engine_build.onnx_graph.network_store import Network, Networks
from engine_build.onnx_graph.opsets import refuse_opset
from engine_build.onnx_graph.reference import keep_reference, kept_reference
from engine_build.ort import OrtNetwork
from engine_build.sources.embedding import refuse_other_vectors
from engine_build.sources.given_network import checked_answers, encoder_of, network_of
from engine_build.sources.source import Checkpoint, Fetching, fetch, intent
from engine_build.steps.calibrate import calibrate_cache
from engine_build.store import store_at

if TYPE_CHECKING:
    from engine_build.sources.source_model import SourceModel

REFERENCE_BATCH = 32


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
    """Makes or finds every network of an order. Raises SourceFault."""
    networks = context.networks()
    key = context.request.network_keys["float"]
    network = networks.find("float", key)
    reference = None if network is None else kept_reference(context.stores, context.request)
    source: SourceModel | None = None
    if network is None or reference is None:
        network, source, is_new = _from_source(context, network)
        if is_new:
            network = networks.keep(key, network)
    if "opset" in network.facts:
        refuse_opset(
            int(network.facts["opset"]),
            context.request.platform,
            may_be_int8=context.request.may_be_int8,
        )
    encoder = encoder_of(network, context.request.longest_sequence)
    check_samples(context.request, network, encoder, context.log)
    if reference is None:
        reference = _reference(context, network, encoder, source)
    found, without_int8 = {"float": network}, None
    if context.request.may_be_int8:
        check_calibration_classes(context.request, network, encoder)
        if context.request.quantization == "explicit":
            int8, without_int8 = _int8_if_possible(context, networks, network, encoder, reference)
            found |= {} if int8 is None else {"int8": int8}
        else:
            calibrate_cache(context, network, encoder)
    return_memory()
    return Prepared(
        networks=found,
        encoder=encoder,
        reference=reference,
        source=source,
        without_int8=without_int8,
    )


def _from_source(
    context: BuildContext, known: Network | None
) -> tuple[Network, SourceModel | None, bool]:
    order, folder = context.request, context.work.scratch("source")
    bucket = partial(store_at, region=order.region)
    fetching = Fetching(root=order.root, folder=folder, runner=context.runner, bucket=bucket)
    with context.log.step("fetch", intent(order.model.source)):
        source = fetch(order.model.source, fetching)
    if isinstance(source, Checkpoint):
        return _from_checkpoint(context, source, known)
    with context.log.step("export", f"{source.path.name} is a network already; it is checked"):
        network = (
            network_of(source, order, context.work.scratch("float")) if known is None else known
        )
        network = checked_answers(network, order)
    return network, None, known is None


def _from_checkpoint(
    context: BuildContext, source: Checkpoint, known: Network | None
) -> tuple[Network, SourceModel, bool]:
    # torch and transformers take seconds to import; builds whose networks are known never need
    # them.
    with context.log.step("load", "the source model in PyTorch, float32"):
        from engine_build.sources.export import INTENT, export
        from engine_build.sources.source_model import SourceModel

        assert context.request.longest_sequence is not None
        model = SourceModel(
            source.folder, longest=context.request.longest_sequence, task=context.request.model.task
        )
    if known is not None:
        return known, model, False
    with context.log.step("export", INTENT):
        network = export(
            model,
            context.request.validation.values,
            context.work.scratch("float"),
            longest=context.request.longest_sequence,
        )
    if (difference := network.facts.get("max_abs_difference")) is not None:
        context.log.line(f"  largest difference from PyTorch {difference:.2g}")
    return network, model, True


def _reference(
    context: BuildContext, network: Network, encoder: Encoder, source: SourceModel | None
) -> Array:
    with context.log.step(
        "reference",
        f"{len(context.request.validation)} validation samples through the source model",
    ):
        rows = _reference_rows(context, network, encoder, source)
        if not np.isfinite(rows).all():
            broken = int((~np.isfinite(rows)).any(axis=1).sum())
            raise SourceFault(
                f"the source model gives NaN or Inf for {broken} of {len(rows)} validation samples; repair it."
            )
        if len(rows) > 1 and (rows == rows[0]).all():
            raise SourceFault(
                f"the source model answers all {len(rows)} validation samples alike, so nothing can be judged."
            )
        keep_reference(context.kept, context.request, rows, context.work.scratch("reference"))
    if source is not None:
        # What follows needs its answers only; the benchmark loads it again.
        source.release()
    return rows


def _reference_rows(
    context: BuildContext, network: Network, encoder: Encoder, source: SourceModel | None
) -> Array:
    """The source's own answers: of an embedding checkpoint, those of sentence-transformers."""
    samples, longest = context.request.validation.values, context.request.longest_sequence
    batches = -(-len(samples) // REFERENCE_BATCH)
    if source is None or longest is None or not source.embeds:
        answer = OrtNetwork(network.path).rows if source is None else source.rows
        told = context.log.counting(answer, batches, "batches")
        return rows_by_length(told, encoder, samples, REFERENCE_BATCH)
    source.release()
    embedder = source.reference_embedder(longest)
    encode = context.log.counting(embedder.rows, batches, "batches")
    order = by_length(encoder, samples)
    sorted_rows = np.concatenate(
        [
            encode([samples[place] for place in order[begin : begin + REFERENCE_BATCH]])
            for begin in range(0, len(order), REFERENCE_BATCH)
        ]
    )
    rows: Array = np.empty_like(sorted_rows)
    rows[order] = sorted_rows
    first = encoder.feed(samples[:REFERENCE_BATCH])
    refuse_other_vectors(OrtNetwork(network.path).rows(first), rows[:REFERENCE_BATCH])
    return rows


def _int8_if_possible(
    context: BuildContext, networks: Networks, network: Network, encoder: Encoder, reference: Array
) -> tuple[Network | None, str | None]:
    """The network, or why there is none, which only `auto` takes for an answer."""
    try:
        return _int8(context, networks, network, encoder, reference), None
    except NothingForInt8 as error:
        if context.request.model.engine.precision != "auto":
            raise
        context.log.line(f"  int8 is not tried: {error}")
        return None, str(error)


def _int8(
    context: BuildContext, networks: Networks, network: Network, encoder: Encoder, reference: Array
) -> Network:
    found = networks.find("int8", context.request.network_keys["int8"])
    if found is not None:
        return found
    from engine_build.steps.quantize import quantize_network

    return quantize_network(context, networks, network, encoder, reference)
