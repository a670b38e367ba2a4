"""The quantize step: the INT8 network, confirmed on samples that no other step saw."""

from __future__ import annotations

from functools import partial

from engine_build.errors import InputRefused
from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.evaluation.answers import rows_by_length
from engine_build.networks.network_store import Network, Networks
from engine_build.order import Order
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization, format_share
from engine_build.quantization.range_cache import RangeCache
from engine_build.quantization.sensitivity import BATCH, Score, Split, holds_budget
from engine_build.samples.dataset import Samples
from engine_build.samples.encoder import Encoder
from engine_build.samples.feed import Array
from engine_build.shop import Shop
from engine_build.sources.classes import class_numbers


def quantize_network(
    shop: Shop, networks: Networks, network: Network, encoder: Encoder, reference: Array
) -> Network:
    """Make the INT8 network of the float one, and keep it. Raises SourceFault.

    `reference` holds the source model's answers to the validation samples. A search's choice is
    confirmed on those samples, in ONNX Runtime; while they refuse it, the next smaller share is
    taken.
    """
    quantization, order = quantization_of(shop, network, encoder), shop.order
    with shop.log.step("quantize", quantization.description):
        int8 = quantization.run(shop.log.line)
        if quantization.search is not None:
            score = validation_split(order, network).score(reference)
            int8 = quantization.confirm(int8, partial(_holds, shop, score, encoder))
        networks.keep(order.network_keys["int8"], int8)
    shop.log.line(f"  {format_share(int8.facts, order.opt_shape)}")
    return int8


def quantization_of(shop: Shop, network: Network, encoder: Encoder) -> Quantization:
    """Return the quantization that a build asks for."""
    order = shop.order
    calibration = order.model.engine.calibration
    assert calibration is not None
    return Quantization(
        network=network,
        encoder=encoder,
        method=calibration.method,
        calibration=order.calibration.values,
        shape=order.opt_shape,
        cache=RangeCache(shop.stores, shop.work.scratch("ranges")),
        folder=shop.work.scratch("int8"),
        search=_search_split(order, network),
        progress=shop.log.progress,
    )


def validation_split(order: Order, network: Network) -> Split:
    """Return the samples that neither calibration nor a search has seen."""
    return _split(order, network, order.validation, order.model.accuracy.dataset)


def _search_split(order: Order, network: Network) -> Split | None:
    spec = order.model.engine.sensitivity_search
    if spec is None or len(order.search) == 0:
        return None
    return _split(order, network, order.search, spec.dataset)


def _split(order: Order, network: Network, samples: Samples, dataset: str) -> Split:
    """Score by the model's own metric and budget."""
    spec, labels = order.model.accuracy, None
    if spec.metric == "accuracy":
        if samples.labels is None:
            raise InputRefused(
                f"dataset {dataset} has no labels, and metric accuracy needs them; add them."
            )
        labels = class_numbers(samples.labels, network, dataset)

    def score(reference: Array) -> Score:
        standard = Standard(
            reference=reference, metric=spec.metric, budget=spec.budget, labels=labels
        )
        return partial(accuracy, "int8 Q/DQ network", standard=standard)

    return Split(samples=samples.values, score=score)


def _holds(shop: Shop, score: Score, encoder: Encoder, network: Network) -> bool:
    answer, samples = OrtNetwork(network.path).rows, shop.order.validation.values
    record = score(rows_by_length(answer, encoder, samples, BATCH))
    holds = holds_budget(record)
    share = network.facts["int8_share_of_matmul_macs"]
    shop.log.line(
        f"  {share:.1%} INT8 on the validation split: mean {record.mean}, worst {record.worst}: "
        f"{'within the budget' if holds else 'refused'}"
    )
    return holds
