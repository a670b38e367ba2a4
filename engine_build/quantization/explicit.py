"""Explicit INT8: a symmetric Q/DQ network of the float one.

Texts of one word repeated join the calibration samples (Encoder.repetitions), and weights are
rounded so that rows make up for each other (calibration.py).

With a search split, the layers that stay in float are found by what they cost. Without one every
layer is INT8, and no activation smoothed, which costs time behind a GELU; where the caller's
samples refuse that, activations are smoothed; where they refuse that too, each MatMul and Gemm
behind an activation function, where outliers live, goes back to float; a Conv stands behind one
almost always, and loses little. Activation x activation products always stay in float, and so do
layers that INT8 makes no faster (placement.py). The network's facts say which layers and why:

mode, method, samples       explicit; how thresholds are chosen; calibration samples
int8_share_of_matmul_macs   part of the multiply-accumulates of all nodes (layers.COUNTED), at
                            share_at_sequence tokens
not_counted                 operators with multiply-accumulates beside those, such as "2 Loop"
int8_layers, float_layers   how many; the nodes left in float, activation products included
smoothing                   activation tensor -> alpha, null where it is not smoothed
layers                      of each weighted layer: node, operator, share, int8, why; with a search
                            also drift and mean
frontier, leaving           with a search: its points (Point.facts), and the order in which layers
                            leave INT8
search_samples              with a search: how many
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from engine_build.datasets.dataset import Encoder, Sample, Shape, by_length
from engine_build.errors import NothingForInt8
from engine_build.onnx_graph.network_store import Network
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.quantization.calibration import calibrate
from engine_build.quantization.layers import (
    Layer,
    left_in_float,
    multiply_accumulates,
    quantizable_layers,
    share,
    work_facts,
)
from engine_build.quantization.qdq import quantize_layers, write_quantized
from engine_build.quantization.sensitivity import (
    CalibratedNetwork,
    LayerCost,
    Sensitivity,
    Split,
    search_on,
)
from onboarding.values import CalibrationMethod

BATCH = 8
"""Calibration rows at once: every layer's input is held for them."""
Facts = dict[str, Any]
EVERY = "no search was asked for, and every layer is INT8"
SMOOTHED = f"{EVERY}: the samples refused it unsmoothed"
PLAIN = "a Conv, or weighted behind no activation function"
BEHIND = (
    "behind an activation function, where outliers live: the samples refused INT8 of every layer"
)


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """One float network, and how it is quantized."""

    network: Network
    encoder: Encoder
    method: CalibrationMethod
    calibration: tuple[Sample, ...]
    shape: Shape
    """At which the share of INT8 work is computed."""
    folder: Path
    """Where `model.onnx` is written."""
    search: Split | None = None
    progress: Callable[[str], None] = lambda text: None

    @property
    def description(self) -> str:
        """Say what `run` does."""
        search = ""
        if self.search is not None:
            search = f"; sensitivity search on {len(self.search.samples)} others"
        return (
            "symmetric INT8 Q/DQ of MatMul, Gemm and Conv, "
            f"{self.method} of {len(self.calibration)} samples{search}"
        )

    def run(self, log: Callable[[str], None]) -> Network:
        """Write the Q/DQ network, and log what the search chose. Raises SourceFault."""
        if self.search is None:
            return next(self._choices)
        network = self._calibrated
        result = search_on(network, self.search, self.encoder).run(self.progress)
        chosen = result.chosen
        log(
            f"  {len(chosen.int8)} of {len(result.costs)} layers in INT8, {chosen.share:.1%} "
            f"of the work: mean {chosen.accuracy.mean:.5f} on the search split"
        )
        facts = _search_facts(network, result, len(self.search.samples))
        return self._write(network, chosen.int8, self._common(network) | facts)

    def confirm(self, network: Network, holds: Callable[[Network], bool]) -> Network:
        """Write what is more accurate until `holds`, or until there is nothing more.

        With a search it is the next smaller share that held in it. Without one it is every layer
        smoothed, then those alone that stand behind no activation function. Raises NothingForInt8
        where there is no such layer.
        """
        while not holds(network):
            following = self._following(network)
            if following is None:
                break
            network = following
        return network

    def _following(self, network: Network) -> Network | None:
        if self.search is None:
            return next(self._choices, None)
        facts = _smaller_share(network.facts)
        if facts is None:
            return None
        int8 = [layer["node"] for layer in facts["layers"] if layer["int8"]]
        return self._write(self._calibrated, int8, facts)

    @cached_property
    def _choices(self) -> Iterator[Network]:
        """Write the network without a search, the fastest first, each when it is asked for."""
        plain = self._calibrate(smooths=False)
        yield self._write_rule(plain, [layer.node for layer in plain.layers], EVERY)
        if not any(layer.can_be_smoothed for layer in plain.layers):
            return
        network = self._calibrated
        if any(limits.smoothing is not None for limits in network.ranges.values()):
            yield self._write_rule(network, [layer.node for layer in network.layers], SMOOTHED)
        # All but a MatMul and Gemm behind an activation function.
        int8 = [
            layer.node
            for layer in network.layers
            if layer.operator == "Conv" or not layer.follows_activation_function
        ]
        if not int8:
            raise NothingForInt8(
                "INT8 of every weighted layer misses the accuracy budget, and each of them that "
                "gains from INT8 is a MatMul or Gemm that follows an activation function; ask for "
                "a sensitivity_search."
            )
        if len(int8) < len(network.layers):
            yield self._write_rule(network, int8, PLAIN)

    def _write_rule(self, network: CalibratedNetwork, int8: Sequence[str], why: str) -> Network:
        layers = [
            _layer_facts(layer, network.shares[layer.node], layer.node in int8)
            | {"why": why if layer.node in int8 else BEHIND}
            for layer in network.layers
        ]
        facts = self._common(network) | {"layers": layers + _left_facts(network)}
        return self._write(network, int8, facts)

    def _common(self, network: CalibratedNetwork) -> Facts:
        return {
            "mode": "explicit",
            "method": self.method,
            "samples": len(self.calibration),
            "share_at_sequence": self.shape.sequence,
            "smoothing": {
                name: None if limits.smoothing is None else limits.smoothing.alpha
                for name, limits in network.ranges.items()
            },
        }

    @cached_property
    def _calibrated(self) -> CalibratedNetwork:
        return self._calibrate(smooths=True)

    def _calibrate(self, *, smooths: bool) -> CalibratedNetwork:
        """Return the float network with its ranges. Raises SourceFault."""
        network = self._float_network
        values = (*self.calibration, *self.encoder.repetitions(self.calibration))
        samples = [values[index] for index in by_length(self.encoder, values)]
        ranges = calibrate(
            network.model,
            quantizable_layers(network.model),
            partial(self.encoder.feeds, samples, BATCH),
            batches=-(-len(samples) // BATCH),
            method=self.method,
            smooths=smooths,
        )
        return dataclasses.replace(network, ranges=ranges)

    @cached_property
    def _float_network(self) -> CalibratedNetwork:
        """Read the float network, and place its layers; it has no ranges. Raises SourceFault."""
        model = read_model(self.network.path)
        layers = quantizable_layers(model)
        if not layers:
            raise NothingForInt8(
                "the network has no MatMul, Gemm or Conv with a constant float32 weight; "
                "INT8 needs one: ask for fp32."
            )
        row = self.encoder.shaped(self.calibration, dataclasses.replace(self.shape, batch=1))
        work = multiply_accumulates(model, row)
        one_sample = self.shape.batch == 1 and self.shape.sequence != 1
        reasons = left_in_float(model, layers, work, one_sample=one_sample)
        placed = tuple(layer for layer in layers if layer.node not in reasons)
        if not placed:
            node, reason = next(iter(reasons.items()))
            raise NothingForInt8(
                f"no weighted layer of the network gains from INT8 ({node} is {reason}); ask for "
                "precision auto or fp32."
            )
        return CalibratedNetwork(
            model=model,
            layers=placed,
            ranges={},
            work=work,
            left_in_float=tuple(
                (layer, reasons[layer.node]) for layer in layers if layer.node in reasons
            ),
        )

    def _write(self, network: CalibratedNetwork, int8: Sequence[str], facts: Facts) -> Network:
        chosen = [layer for layer in network.layers if layer.node in int8]
        quantized = quantize_layers(network.model, chosen, network.ranges)
        facts = facts | work_facts(network.model, network.work, int8)
        result = dataclasses.replace(self.network, facts=facts)
        feed = self.encoder.feed(self.calibration[:2])
        return write_quantized(quantized, result, "int8", self.folder, feed)


def _left_facts(network: CalibratedNetwork) -> list[Facts]:
    return [
        _layer_facts(layer, share(network.work, (layer.node,)), False) | {"why": why}
        for layer, why in network.left_in_float
    ]


def format_share(facts: Facts, shape: Shape) -> str:
    """Return the share of INT8 or FP8 work, named by what it counts."""
    counted = f"{facts['int8_share_of_matmul_macs']:.1%} of all counted"
    beside = ", ".join(facts.get("not_counted", ()))
    rest = f"; not counted, and in float: {beside}" if beside else ""
    layers = f"{facts['int8_layers']} layers are {facts.get('precision', 'int8').upper()}"
    return f"{layers}: {counted} multiply-accumulates at {shape}{rest}"


def _search_facts(network: CalibratedNetwork, result: Sensitivity, samples: int) -> Facts:
    """Return the facts of a network whose layers a search chose."""
    return {
        "layers": [
            _layer_facts(cost.layer, cost.share, cost.layer.node in result.chosen.int8)
            | {
                "drift": float(f"{cost.drift:.3g}"),
                "mean": round(cost.mean, 6),
                "why": _reason(cost, result),
            }
            for cost in result.costs
        ]
        + _left_facts(network),
        "frontier": [point.facts(chosen=point is result.chosen) for point in result.points],
        "leaving": list(result.leaving),
        "search_samples": samples,
    }


def _smaller_share(facts: Facts) -> Facts | None:
    """Return the facts of the next smaller share that held in the search; None without one.

    The caller computes the share and the layers in float anew.
    """
    points = facts.get("frontier", [])
    now = next((point["share"] for point in points if point["chosen"]), 0.0)
    smaller = [point for point in points if point["holds"] and point["share"] < now]
    if not smaller:
        return None
    chosen = max(smaller, key=lambda point: float(point["share"]))
    int8 = facts["leaving"][-chosen["int8_layers"] :]
    refused = {"refused_by_validation": True}
    frontier = [
        point | {"chosen": point is chosen} | (refused if point["chosen"] else {})
        for point in points
    ]
    layers = []
    for layer in facts["layers"]:
        if layer["int8"] and layer["node"] not in int8:
            why = "left out because the validation split refused the larger share"
            layer = layer | {"int8": False, "why": f"{layer['why']}; {why}"}
        layers.append(layer)
    return facts | {"frontier": frontier, "layers": layers}


def _layer_facts(layer: Layer, part: float, int8: bool) -> Facts:
    return {"node": layer.node, "operator": layer.operator, "share": round(part, 4), "int8": int8}


def _reason(cost: LayerCost, result: Sensitivity) -> str:
    alone = f"alone in INT8 it drifts by {cost.drift:.1e} for {cost.share:.1%} of the work"
    if cost.layer.node in result.chosen.int8:
        return alone
    place = f"number {result.leaving.index(cost.layer.node) + 1} of {len(result.leaving)}"
    return f"{alone}, {place} in cost for its share: with it the budget breaks on the search split"
