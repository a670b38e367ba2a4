"""What a network's facts say of its quantization (quantization.py has the keys), and a search's
table.

The quantize step, explicit mode: a symmetric INT8 Q/DQ network of the float one.

With a search split, the layers that stay in float are found by what they cost; without one they are
those behind an activation
function, where outliers live. Activation x activation products always stay in float. The network's
facts say which and why:

mode, method, samples       explicit; how thresholds are chosen; calibration samples
int8_share_of_matmul_macs   part of the multiply-accumulates of all MatMul, Gemm and Conv, at
share_at_sequence tokens
int8_layers, float_layers   how many; the nodes left in float, activation x activation products
among them
smoothing                   activation tensor -> alpha, null where it is not smoothed
layers                      of each weighted layer: node, operator, share, int8, why; with a search
also drift and mean
frontier, leaving           with a search: its points (frontier.py says the keys), and the order in
which layers leave INT8
search_samples              with a search: how many
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from engine_build.errors import NothingForInt8, SourceFault
from engine_build.networks.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.quantization.calibration import Range, calibrated
from engine_build.quantization.layers import Layer, layers, multiply_accumulates, share
from engine_build.quantization.qdq import quantized
from engine_build.quantization.range_cache import RangeCache, ranges_digest
from engine_build.quantization.sensitivity import (
    LayerCost,
    Material,
    Sensitivity,
    Split,
    search_on,
    table,
)
from engine_build.samples.dataset import Sample
from engine_build.samples.encoder import Encoder, by_length
from engine_build.samples.feed import Shape
from engine_build.sources.onnx_source import read_model
from onboarding.values import CalibrationMethod

Facts = dict[str, Any]
PLAIN = "weighted, and behind no activation function"
BEHIND = "behind an activation function, where outliers live, and no search was asked for"


def work_facts(work: Mapping[str, int], int8: Collection[str]) -> Facts:
    """The share, and what stays in float."""
    return {
        "int8_share_of_matmul_macs": round(share(work, int8), 4),
        "int8_layers": len(int8),
        "float_layers": [node for node in work if node not in int8],
    }


def range_facts(ranges: Mapping[str, Range]) -> Facts:
    """Each activation's smoothing."""
    return {
        "smoothing": {
            name: None if each.smoothing is None else each.smoothing.alpha
            for name, each in ranges.items()
        }
    }


def fixed_facts(
    layers: Sequence[Layer], shares: Mapping[str, float], int8: Collection[str]
) -> Facts:
    """By the fixed recipe."""
    return {
        "layers": [
            _layer(layer, shares[layer.node], layer.node in int8)
            | {"why": PLAIN if layer.node in int8 else BEHIND}
            for layer in layers
        ]
    }


def search_facts(found: Sensitivity, samples: int) -> Facts:
    """By a search."""
    return {
        "layers": [
            _layer(cost.layer, cost.share, cost.layer.node in found.chosen.int8)
            | {
                "drift": float(f"{cost.drift:.3g}"),
                "mean": round(cost.mean, 6),
                "why": _why(cost, found),
            }
            for cost in found.costs
        ],
        "frontier": [point.facts(chosen=point is found.chosen) for point in found.points],
        "leaving": list(found.leaving),
        "search_samples": samples,
    }


def stepped_back(facts: Facts) -> Facts | None:
    """The facts of the next smaller share that held the budget in the search; None when there is
    none.

    The share and the layers in float are the caller's to tell anew.
    """
    points = facts.get("frontier", [])
    now = next((point["share"] for point in points if point["chosen"]), 0.0)
    smaller = [point for point in points if point["holds"] and point["share"] < now]
    if not smaller:
        return None
    chosen = max(smaller, key=lambda point: float(point["share"]))
    int8 = facts["leaving"][-chosen["int8_layers"] :]
    return facts | {
        "frontier": [_chosen_anew(point, chosen) for point in points],
        "layers": [
            _left_out(layer) if layer["int8"] and layer["node"] not in int8 else layer
            for layer in facts["layers"]
        ],
    }


def cost_table(found: Sensitivity) -> str:
    """Plain text, a layer a line, the dearest for its share first."""
    lines = [f"{'share':>6}  {'drift':>9}  {'mean alone':>10}  {'':5}  layer"]
    for cost in sorted(found.costs, key=lambda cost: -cost.per_share):
        kind = "int8" if cost.layer.node in found.chosen.int8 else "float"
        lines.append(
            f"{cost.share:6.1%}  {cost.drift:9.2e}  {cost.mean:10.5f}  {kind:5}  {cost.layer.node}"
        )
    return "\n".join(lines)


def _layer(layer: Layer, part: float, int8: bool) -> Facts:
    return {"node": layer.node, "operator": layer.operator, "share": round(part, 4), "int8": int8}


def _chosen_anew(point: Facts, chosen: Facts) -> Facts:
    return (
        point
        | {"chosen": point is chosen}
        | ({"refused_by_validation": True} if point["chosen"] else {})
    )


def _left_out(layer: Facts) -> Facts:
    return layer | {
        "int8": False,
        "why": f"{layer['why']}; left out because the validation split refused the larger share",
    }


def _why(cost: LayerCost, found: Sensitivity) -> str:
    alone = f"alone in INT8 it drifts by {cost.drift:.1e} for {cost.share:.1%} of the work"
    if cost.layer.node in found.chosen.int8:
        return alone
    place = found.leaving.index(cost.layer.node) + 1
    return f"{alone}, number {place} of {len(found.leaving)} in cost for its share: with it the budget breaks on the search split"


BATCH = 8
"""Calibration rows at once: every layer's input is held for them."""


@dataclass(frozen=True, kw_only=True)
class Quantization:
    """One float network, and how it goes to INT8."""

    network: Network
    encoder: Encoder
    method: CalibrationMethod
    calibration: tuple[Sample, ...]
    shape: Shape
    """Where the share of INT8 work is told."""
    cache: RangeCache
    folder: Path
    """Where `model.onnx` is written."""
    search: Split | None = None
    progress: Callable[[str], None] = lambda text: None
    """Told how far a search is."""

    def intent(self) -> str:
        """What the step will do."""
        search = (
            ""
            if self.search is None
            else f"; sensitivity search on {len(self.search.samples)} others"
        )
        return f"symmetric INT8 Q/DQ of MatMul, Gemm and Conv, smoothed, {self.method} of {len(self.calibration)} samples{search}"

    def run(self, say: Callable[[str], None]) -> Network:
        """Writes the Q/DQ network, and tells what a search finds. Raises SourceFault."""
        material = self.material()
        int8, facts = (
            self._fixed(material)
            if self.search is None
            else self._searched(material, self.search, say)
        )
        common: Facts = {
            "mode": "explicit",
            "method": self.method,
            "samples": len(self.calibration),
        }
        common |= {"share_at_sequence": self.shape.sequence} | range_facts(material.ranges)
        return self._written(material, int8, common | facts)

    def safer(self, refused: Network) -> Network | None:
        """For when the validation split refuses a network: the next smaller share that held in the
        search; None without one.
        """
        facts = stepped_back(refused.facts)
        if facts is None:
            return None
        return self._written(
            self.material(), [layer["node"] for layer in facts["layers"] if layer["int8"]], facts
        )

    def confirmed(self, network: Network, holds: Callable[[Network], bool]) -> Network:
        """Steps back until samples that the search never saw are inside the budget too, or there is
        no safer network.
        """
        while not holds(network):
            safer = self.safer(network)
            if safer is None:
                return network
            network = safer
        return network

    def material(self) -> Material:
        """The float network read and calibrated, or its ranges found. Raises SourceFault."""
        model = read_model(self.network.path)
        found = layers(model)
        if not found:
            raise NothingForInt8(
                "the network has no MatMul, Gemm or Conv with a constant float32 weight; INT8 needs one: ask for fp32."
            )
        ranges = self._ranges(model, found)
        row = self.encoder.shaped(self.calibration, dataclasses.replace(self.shape, batch=1))
        return Material(
            model=model, layers=found, ranges=ranges, work=multiply_accumulates(model, row)
        )

    def _fixed(self, material: Material) -> tuple[Sequence[str], Facts]:
        int8 = [layer.node for layer in material.layers if not layer.follows_activation_function]
        if not int8:
            raise NothingForInt8(
                "every weighted layer of the network follows an activation function; ask for a sensitivity_search."
            )
        return int8, fixed_facts(material.layers, material.shares, int8)

    def _searched(
        self, material: Material, split: Split, say: Callable[[str], None]
    ) -> tuple[Sequence[str], Facts]:
        found = search_on(material, split, self.encoder).run(self.progress)
        say(f"{cost_table(found)}\n{table(found.points, found.chosen)}")
        return found.chosen.int8, search_facts(found, len(split.samples))

    def _ranges(self, model: onnx.ModelProto, found: Sequence[Layer]) -> dict[str, Range]:
        digest = ranges_digest(self.network.path, self.calibration, self.method)
        ranges = self.cache.find(digest)
        if ranges is None:
            samples = [
                self.calibration[place] for place in by_length(self.encoder, self.calibration)
            ]
            feeds = partial(self.encoder.feeds, samples, BATCH)
            ranges = calibrated(
                model, found, feeds, batches=-(-len(samples) // BATCH), method=self.method
            )
            self.cache.keep(digest, ranges)
        return ranges

    def _written(self, material: Material, int8: Sequence[str], facts: Facts) -> Network:
        chosen = [layer for layer in material.layers if layer.node in int8]
        path = self.folder / "model.onnx"
        onnx.save(quantized(material.model, chosen, material.ranges), path)
        onnx.checker.check_model(str(path))
        if not np.isfinite(OrtNetwork(path).rows(self.encoder.feed(self.calibration[:2]))).all():
            raise SourceFault("the Q/DQ network gives NaN or Inf; ask for precision fp32.")
        told = facts | work_facts(material.work, int8)
        return dataclasses.replace(
            self.network, precision="int8", path=path, facts=told, tokenizer=None
        )
