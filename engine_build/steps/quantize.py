"""The INT8 network of an order: made, and confirmed on samples that neither calibration nor the
search saw.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from engine_build.errors import InputRefused
from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.evaluation.answers import rows_by_length
from engine_build.networks.network_store import Network, Networks
from engine_build.order import Order
from engine_build.ort import OrtNetwork
from engine_build.quantization.explicit import Quantization
from engine_build.quantization.range_cache import RangeCache
from engine_build.quantization.sensitivity import BATCH, Judge, Split, holds
from engine_build.samples.dataset import Samples
from engine_build.samples.encoder import Encoder
from engine_build.samples.feed import Array
from engine_build.shop import Shop
from engine_build.sources.classes import class_numbers


def int8_network(
    shop: Shop, networks: Networks, network: Network, encoder: Encoder, reference: Array
) -> Network:
    """Made of the float network, and kept; `reference` holds the source model's answers to the
    validation samples.

    A search's choice is confirmed on those samples, in ONNX Runtime; while they refuse it, the next
    smaller share is taken.
    Raises SourceFault.
    """
    quantization, order = quantization_of(shop, network, encoder), shop.order
    with shop.log.step("quantize", quantization.intent()):
        made = quantization.run(shop.log.line)
        if quantization.search is not None:
            judge = validation_split(shop, network).judge(reference)
            made = quantization.confirmed(made, partial(_holds, shop, judge, encoder))
        networks.keep(order.network_keys["int8"], made)
    share, layers = made.facts["int8_share_of_matmul_macs"], made.facts["int8_layers"]
    shop.log.line(
        f"  {layers} layers are INT8: {share:.1%} of the multiply-accumulates at {order.opt_shape}"
    )
    return made


def quantization_of(shop: Shop, network: Network, encoder: Encoder) -> Quantization:
    """What an order asks for."""
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
        search=_search(order, network),
        progress=shop.log.progress,
    )


def _holds(shop: Shop, judge: Judge, encoder: Encoder, network: Network) -> bool:
    record = judge(
        rows_by_length(OrtNetwork(network.path).rows, encoder, shop.order.validation.values, BATCH)
    )
    held = holds(record)
    share = network.facts["int8_share_of_matmul_macs"]
    shop.log.line(
        f"  {share:.1%} INT8 on the validation split: mean {record.mean}, worst {record.worst}: {'held' if held else 'refused'}"
    )
    return held


def validation_split(shop: Shop, network: Network) -> Split:
    """What neither calibration nor a search has seen."""
    order = shop.order
    return Split(
        samples=order.validation.values,
        judge=_judge(order, network, order.validation, order.model.accuracy.dataset),
    )


def _search(order: Order, network: Network) -> Split | None:
    spec = order.model.engine.sensitivity_search
    if spec is None or len(order.search) == 0:
        return None
    return Split(
        samples=order.search.values, judge=_judge(order, network, order.search, spec.dataset)
    )


def _judge(
    order: Order, network: Network, samples: Samples, dataset: str
) -> Callable[[Array], Judge]:
    """By the model's own metric and budget."""
    spec = order.model.accuracy
    labels = _labels(network, samples, dataset) if spec.metric == "accuracy" else None

    def judge(reference: Array) -> Judge:
        standard = Standard(
            reference=reference, metric=spec.metric, budget=spec.budget, labels=labels
        )
        return partial(accuracy, "int8 Q/DQ network", standard=standard)

    return judge


def _labels(network: Network, samples: Samples, dataset: str) -> Array:
    if samples.labels is None:
        raise InputRefused(
            f"dataset {dataset} has no labels, and metric accuracy needs them; add them."
        )
    return class_numbers(samples.labels, network, dataset)
