"""The steps on the CPU that every GPU shares: fetch, export, quantize. What a store has is not made again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from engine_build.accuracy import rows_by_length
from engine_build.encoder import Encoder
from engine_build.feed import Array, Feed
from engine_build.networks import Network, Networks
from engine_build.onnx_source import network_of
from engine_build.ort import OrtNetwork
from engine_build.reference import keep_reference, kept_reference
from engine_build.shop import Shop
from engine_build.source import Checkpoint, Fetching, fetch, intent
from engine_build.tensors import TensorEncoder
from engine_build.text import TextEncoder

REFERENCE_BATCH = 32
Rows = Callable[[Feed], Array]
"""float32 [rows, values] of a feed."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """The networks, the samples' encoder, and what the source model itself answers."""

    networks: dict[str, Network]
    encoder: Encoder
    reference: Array
    source: Rows | None
    """The source model in PyTorch; None when this build had no need to load it."""


def prepare(shop: Shop) -> Prepared:
    """Makes or finds every network of an order. Raises SourceFault."""
    networks = shop.networks()
    key = shop.order.network_keys["float"]
    network = networks.find("float", key)
    reference = None if network is None else kept_reference(shop.stores, shop.order)
    rows: Rows | None = None
    if network is None or reference is None:
        network, rows, is_new = _from_source(shop, network)
        if is_new:
            network = networks.keep(key, network)
        reference = _reference(shop, network, OrtNetwork(network.path).rows if rows is None else rows)
    encoder = _encoder(shop, network)
    found = {"float": network}
    if shop.order.may_be_int8:
        found["int8"] = _int8(shop, networks, network, encoder)
    return Prepared(networks=found, encoder=encoder, reference=reference, source=rows)


def _from_source(shop: Shop, known: Network | None) -> tuple[Network, Rows | None, bool]:
    order, folder = shop.order, shop.work.scratch("source")
    fetching = Fetching(root=order.root, region=order.region, folder=folder, runner=shop.runner)
    with shop.log.step("fetch", intent(order.model.source)):
        source = fetch(order.model.source, fetching)
    if isinstance(source, Checkpoint):
        return _from_checkpoint(shop, source, known)
    if known is not None:
        return known, None, False
    with shop.log.step("export", f"{source.path.name} is a network already; it is checked"):
        return network_of(source, order, shop.work.scratch("float")), None, True


def _from_checkpoint(shop: Shop, source: Checkpoint, known: Network | None) -> tuple[Network, Rows, bool]:
    # torch and transformers take seconds to import; builds whose networks are known never need them.
    with shop.log.step("load", "the source model in PyTorch, float32"):
        from engine_build.export import INTENT, export
        from engine_build.source_model import SourceModel

        assert shop.order.longest_sequence is not None
        model = SourceModel(source.folder, longest=shop.order.longest_sequence)
    if known is not None:
        return known, model.rows, False
    with shop.log.step("export", INTENT):
        network = export(model, shop.order.validation.values, shop.work.scratch("float"), longest=shop.order.longest_sequence)
    if (difference := network.facts.get("max_abs_difference")) is not None:
        shop.log.line(f"  largest difference from PyTorch {difference:.2g}")
    return network, model.rows, True


def _reference(shop: Shop, network: Network, answer: Rows) -> Array:
    with shop.log.step("reference", f"{len(shop.order.validation)} validation samples through the source model"):
        rows = rows_by_length(answer, _encoder(shop, network), shop.order.validation.values, REFERENCE_BATCH)
        keep_reference(shop.kept, shop.order, rows, shop.work.scratch("reference"))
    return rows


def _encoder(shop: Shop, network: Network) -> Encoder:
    longest = shop.order.longest_sequence
    if network.tokenizer is None or longest is None:
        return TensorEncoder(network.inputs)
    return TextEncoder(network.tokenizer, inputs=network.input_names, longest=longest)


def _int8(shop: Shop, networks: Networks, network: Network, encoder: Encoder) -> Network:
    calibration = shop.order.model.engine.calibration
    assert calibration is not None
    key = shop.order.network_keys["int8"]
    found = networks.find("int8", key)
    if found is not None:
        return found
    from engine_build import quantization

    with shop.log.step("quantize", quantization.intent(len(shop.order.calibration), calibration.method)):
        quantize = partial(quantization.quantize, network, encoder, shop.order.calibration.values, shop.work.scratch("int8"))
        result = networks.keep(key, quantize(method=calibration.method, shape=shop.order.opt_shape))
    share = result.facts["int8_share_of_matmul_macs"]
    shop.log.line(f"  {share:.1%} of the MatMul multiply-accumulates are INT8 at {shop.order.opt_shape}")
    return result
