"""The sensitivity search: what each layer costs in INT8, and which ones stay in float.

It runs on the search split, which calibration never saw and the verify step never sees. Each layer
runs alone in INT8; then, from everything in INT8, layers leave in the order of cost per share of
the work until the accuracy budget holds. The cost is the output's drift, half the squared relative
distance from the float network's (1 - cosine for unit vectors), whatever the metric: 128 answers
that are right or wrong cannot tell two layers apart. The points themselves are scored by the
metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from engine_build.datasets.dataset import Array, Encoder, Sample, by_length
from engine_build.quantization.calibration import Range
from engine_build.quantization.layers import Layer, share
from engine_build.quantization.qdq import SwitchableNetwork
from onboarding.manifest import AccuracyRecord

BATCH = 32
STEPS = 12
"""Points from everything in INT8 to one layer, before the budget's edge is looked for."""
FIRST = 4
"""Layers whose leaving is scored one by one: few layers cost the most, so the first ones decide."""
Score = Callable[[Array], AccuracyRecord]
"""Scores rows by the model's metric, against the float network."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Samples that layers in INT8 are scored on."""

    samples: tuple[Sample, ...]
    score: Callable[[Array], Score]
    """From the float network's rows to a score of others."""


@dataclass(frozen=True, kw_only=True)
class CalibratedNetwork:
    """One float network, read and calibrated."""

    model: onnx.ModelProto
    layers: tuple[Layer, ...]
    """With constant weights."""
    ranges: Mapping[str, Range]
    """By activation."""
    work: Mapping[str, int]
    """Multiply-accumulates by node, products of two activations included."""
    left_in_float: tuple[tuple[Layer, str], ...] = ()
    """Weighted layers that INT8 makes no faster, and why."""

    @cached_property
    def shares(self) -> dict[str, float]:
        """Return each layer's part of all work, by node."""
        return {layer.node: share(self.work, (layer.node,)) for layer in self.layers}


@dataclass(frozen=True, kw_only=True)
class Point:
    """Some layers in INT8, and how accurate the network is then."""

    int8: tuple[str, ...]
    """Nodes, in graph order."""
    share: float
    """Of all multiply-accumulates."""
    accuracy: AccuracyRecord

    @property
    def holds(self) -> bool:
        """Return True inside the budget."""
        return holds_budget(self.accuracy)

    def facts(self, *, chosen: bool) -> dict[str, Any]:
        """Return the point as JSON; `int8_layers` is a number."""
        return {
            "share": round(self.share, 4),
            "mean": self.accuracy.mean,
            "worst": self.accuracy.worst,
            "nearest_neighbour_agreement": self.accuracy.nearest_neighbour_agreement,
            "split": "search",
            "holds": self.holds,
            "int8_layers": len(self.int8),
            "chosen": chosen,
        }


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer alone in INT8."""

    layer: Layer
    share: float
    """Of all multiply-accumulates."""
    drift: float
    mean: float
    """Score by the metric."""


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """The result of a search."""

    costs: tuple[LayerCost, ...]
    """In graph order."""
    leaving: tuple[str, ...]
    """Nodes in the order in which they leave INT8: a point of n layers has the last n of them."""
    points: tuple[Point, ...]
    """The largest share first."""
    chosen: Point


@dataclass(frozen=True, kw_only=True)
class Search:
    """A search over one network's layers."""

    layers: tuple[Layer, ...]
    shares: Mapping[str, float]
    """Of all multiply-accumulates, by node."""
    reference: Array
    """The search split's rows, all in float."""
    rows: Callable[[Collection[str]], Array]
    """Gives the split's rows with some layers, by node, in INT8."""
    score: Score

    def run(self, progress: Callable[[str], None]) -> Sensitivity:
        """Measure costs and points, and choose: a pass per layer, and some 18 more."""
        costs: list[LayerCost] = []
        for layer in self.layers:
            progress(f"{len(costs)} of {len(self.layers)} layers measured")
            rows, share = self.rows((layer.node,)), self.shares[layer.node]
            drift = float(drifts(rows, self.reference).mean())
            mean = self.score(rows).mean
            costs.append(LayerCost(layer=layer, share=share, drift=drift, mean=mean))
        # The drift for the work that INT8 saves.
        dearest = sorted(costs, key=lambda cost: -cost.drift / max(cost.share, 1e-9))
        leaving = tuple(cost.layer.node for cost in dearest)
        points = _by_share(self._path(leaving))
        return Sensitivity(
            costs=tuple(costs), leaving=leaving, points=points, chosen=best_point(points)
        )

    def point(self, int8: Collection[str]) -> Point:
        """Score some layers in INT8 together."""
        nodes = tuple(layer.node for layer in self.layers if layer.node in int8)
        return Point(
            int8=nodes,
            share=sum(self.shares[node] for node in nodes),
            accuracy=self.score(self.rows(nodes)),
        )

    def _path(self, leaving: Sequence[str]) -> list[Point]:
        """Score some counts of leaving layers, then bisect for the fewest that hold the budget."""
        last = len(leaving) - 1
        even = (round(step * last / STEPS) for step in range(STEPS + 1))
        counts = sorted({*even, *range(min(FIRST, last) + 1)})
        points = {count: self.point(leaving[count:]) for count in counts}
        holds = next((count for count in counts if points[count].holds), 0)
        breaks = max((count for count in counts if count < holds), default=holds)
        while holds - breaks > 1:
            middle = (holds + breaks) // 2
            points[middle] = self.point(leaving[middle:])
            breaks, holds = (breaks, middle) if points[middle].holds else (middle, holds)
        return list(points.values())


def search_on(network: CalibratedNetwork, split: Split, encoder: Encoder) -> Search:
    """Return a search that loads one network for all mixtures."""
    order = by_length(encoder, split.samples)
    feeds = list(encoder.feeds([split.samples[index] for index in order], BATCH))
    switchable = SwitchableNetwork(network.model, network.layers, network.ranges)
    back = np.argsort(order)

    def rows(int8: Collection[str]) -> Array:
        in_order: Array = switchable.rows(feeds, int8, encoder.aligned)[back]
        return in_order

    layers, shares, reference = network.layers, network.shares, rows(())
    score = split.score(reference)
    return Search(layers=layers, shares=shares, reference=reference, rows=rows, score=score)


def holds_budget(record: AccuracyRecord, *, confirms: bool = False) -> bool:
    """Return True inside the budget, the lower end of the mean's interval included.

    Of same neighbours the share itself counts, since the interval of a search split's is wide; to
    confirm a choice its lower end does.
    """
    lowest = record.mean if record.mean_interval is None else record.mean_interval[0]
    same, interval = record.nearest_neighbour_agreement, record.nearest_neighbour_interval
    if confirms and interval is not None:
        same = interval[0]
    return (
        lowest >= record.budget_mean
        and (record.budget_worst is None or record.worst >= record.budget_worst)
        and (record.budget_neighbours is None or same is None or same >= record.budget_neighbours)
    )


def best_point(points: Sequence[Point]) -> Point:
    """Return the largest share inside the budget, else the best mean, which verify refuses."""
    holding = [point for point in _by_share(points) if point.holds]
    return holding[0] if holding else max(points, key=lambda point: point.accuracy.mean)


def drifts(rows: Array, reference: Array) -> Array:
    """Return half the squared distance over the squared length of the reference, [samples]."""
    squared = ((rows.astype(np.float64) - reference) ** 2).sum(axis=1)
    lengths = (reference.astype(np.float64) ** 2).sum(axis=1)
    drift: Array = squared / np.maximum(lengths, 1e-30) / 2
    return drift


def _by_share(points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple(sorted(points, key=lambda point: -point.share))
