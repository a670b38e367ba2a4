"""Accuracy against the share of INT8 work: points that a search measured, and the choice among
them.

The sensitivity search: what each layer costs in INT8, and which ones stay in float so that the
budget holds.

Judged on the search split, which calibration never saw and the verify step never sees. Each layer
runs alone in INT8; then, from
everything in INT8, layers leave in the order of cost per share of the work. The cost is the
output's drift, half the squared
relative distance from the float network's (1 - cosine for unit vectors), whatever the metric: 128
answers of right or wrong
cannot tell two layers apart. The points themselves are judged by the metric.

A split of samples, and a search over a network's layers with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx

from engine_build.quantization.calibration import Range
from engine_build.quantization.layers import Layer, share
from engine_build.quantization.qdq import SwitchableNetwork
from engine_build.samples.dataset import Sample
from engine_build.samples.encoder import Encoder, by_length
from engine_build.samples.feed import Array
from onboarding.manifest import AccuracyRecord


@dataclass(frozen=True, kw_only=True)
class Point:
    """Some layers in INT8, and how well the network answers then."""

    int8: tuple[str, ...]
    """Nodes, in graph order."""
    share: float
    """Of all multiply-accumulates."""
    accuracy: AccuracyRecord

    @property
    def holds(self) -> bool:
        """True inside the budget."""
        return holds(self.accuracy)

    def facts(self, *, chosen: bool, split: str = "search") -> dict[str, Any]:
        """As JSON: share, mean, worst, nearest_neighbour_agreement, split, holds, int8_layers (a
        number), chosen.
        """
        return {
            "share": round(self.share, 4),
            "mean": self.accuracy.mean,
            "worst": self.accuracy.worst,
            "nearest_neighbour_agreement": self.accuracy.nearest_neighbour_agreement,
            "split": split,
            "holds": self.holds,
            "int8_layers": len(self.int8),
            "chosen": chosen,
        }


def holds(record: AccuracyRecord) -> bool:
    """True inside the budget, the lower end of the mean's interval included: other samples are to
    judge it later.
    """
    lowest = record.mean if record.mean_interval is None else record.mean_interval[0]
    return lowest >= record.budget_mean and (
        record.budget_worst is None or record.worst >= record.budget_worst
    )


def by_share(points: Sequence[Point]) -> tuple[Point, ...]:
    """The largest share of INT8 work first."""
    return tuple(sorted(points, key=lambda point: -point.share))


def choice(points: Sequence[Point]) -> Point:
    """The largest share inside the budget; where none is, the best mean, for the verify step to
    refuse with its numbers.
    """
    holding = [point for point in by_share(points) if point.holds]
    return holding[0] if holding else max(points, key=lambda point: point.accuracy.mean)


def table(points: Sequence[Point], chosen: Point | None = None) -> str:
    """Plain text, a point a line."""
    lines = [f"{'INT8 share':>10}  {'layers':>6}  {'mean':>8}  {'worst':>8}  {'nearest':>7}"]
    for point in by_share(points):
        record, mark = point.accuracy, "  <- chosen" if point is chosen else ""
        agreement = record.nearest_neighbour_agreement
        nearest = f"{'-' if agreement is None else format(agreement, '.3f'):>7}"
        lines.append(
            f"{point.share:10.1%}  {len(point.int8):6}  {record.mean:8.5f}  {record.worst:8.5f}  {nearest}{mark}"
        )
    return "\n".join(lines)


Answers = Callable[[Collection[str]], Array]
"""The search split's rows with some layers, by node, in INT8."""
Judge = Callable[[Array], AccuracyRecord]
"""By the model's metric, against the float network."""
STEPS = 12
"""Points on the path from everything in INT8 to one layer, before the budget's edge is looked for.
"""
FIRST = 4
"""Layers whose leaving is judged one by one: few layers cost the most, so the first ones decide."""


@dataclass(frozen=True, kw_only=True)
class LayerCost:
    """One layer alone in INT8."""

    layer: Layer
    share: float
    """Of all multiply-accumulates."""
    drift: float
    mean: float
    """Score by the metric."""

    @property
    def per_share(self) -> float:
        """What INT8 costs here for what it saves."""
        return self.drift / max(self.share, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What a search found."""

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
    answers: Answers
    judge: Judge

    def run(self, progress: Callable[[str], None]) -> Sensitivity:
        """Costs, the path, the choice: about one pass over the search split per layer, and a dozen
        and a half more.
        """
        costs: list[LayerCost] = []
        for layer in self.layers:
            progress(f"{len(costs)} of {len(self.layers)} layers priced")
            costs.append(self._cost(layer))
        leaving = tuple(cost.layer.node for cost in sorted(costs, key=lambda cost: -cost.per_share))
        points = by_share(self._path(leaving))
        return Sensitivity(
            costs=tuple(costs), leaving=leaving, points=points, chosen=choice(points)
        )

    def point(self, int8: Collection[str]) -> Point:
        """Judges some layers in INT8 together."""
        nodes = tuple(layer.node for layer in self.layers if layer.node in int8)
        return Point(
            int8=nodes,
            share=sum(self.shares[node] for node in nodes),
            accuracy=self.judge(self.answers(nodes)),
        )

    def _cost(self, layer: Layer) -> LayerCost:
        rows = self.answers((layer.node,))
        drift = float(drifts(rows, self.reference).mean())
        return LayerCost(
            layer=layer, share=self.shares[layer.node], drift=drift, mean=self.judge(rows).mean
        )

    def _path(self, leaving: Sequence[str]) -> list[Point]:
        """Some counts of layers that leave, then the fewest that the budget asks for, by halving
        what lies between.
        """
        last = len(leaving) - 1
        counts = sorted(
            {round(step * last / STEPS) for step in range(STEPS + 1)}
            | set(range(min(FIRST, last) + 1))
        )
        points = {count: self.point(leaving[count:]) for count in counts}
        holds = next((count for count in counts if points[count].holds), 0)
        breaks = max((count for count in counts if count < holds), default=holds)
        while holds - breaks > 1:
            middle = (holds + breaks) // 2
            points[middle] = self.point(leaving[middle:])
            breaks, holds = (breaks, middle) if points[middle].holds else (middle, holds)
        return list(points.values())


def drifts(rows: Array, reference: Array) -> Array:
    """[samples]: half the squared distance over the squared length of the reference."""
    squared = ((rows.astype(np.float64) - reference) ** 2).sum(axis=1)
    lengths = (reference.astype(np.float64) ** 2).sum(axis=1)
    drift: Array = squared / np.maximum(lengths, 1e-30) / 2
    return drift


BATCH = 32


@dataclass(frozen=True, kw_only=True)
class Split:
    """What layers in INT8 are judged by."""

    samples: tuple[Sample, ...]
    judge: Callable[[Array], Judge]
    """From the float network's rows to what judges others."""


@dataclass(frozen=True, kw_only=True)
class Material:
    """One float network, read, and what calibration and shapes tell of it."""

    model: onnx.ModelProto
    layers: tuple[Layer, ...]
    """With constant weights."""
    ranges: Mapping[str, Range]
    """By activation."""
    work: Mapping[str, int]
    """Multiply-accumulates by node, products of two activations among them."""

    @cached_property
    def shares(self) -> dict[str, float]:
        """Part of all work, by layer's node."""
        return {layer.node: share(self.work, (layer.node,)) for layer in self.layers}


def search_on(material: Material, split: Split, encoder: Encoder) -> Search:
    """One network is loaded for all mixtures; samples run in order of length, and rows come back in
    theirs.
    """
    order = by_length(encoder, split.samples)
    feeds = list(encoder.feeds([split.samples[place] for place in order], BATCH))
    network, back = (
        SwitchableNetwork(material.model, material.layers, material.ranges),
        np.argsort(order),
    )

    def answers(int8: Collection[str]) -> Array:
        rows: Array = network.rows(feeds, int8)[back]
        return rows

    reference = answers(())
    return Search(
        layers=material.layers,
        shares=material.shares,
        reference=reference,
        answers=answers,
        judge=split.judge(reference),
    )
