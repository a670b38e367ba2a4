"""The sensitivity search: what each layer costs in INT8, and which ones stay in float so that the
budget holds.

Judged on the search split, which calibration never saw and the verify step never sees. Each layer
runs alone in INT8; then, from
everything in INT8, layers leave in the order of cost per share of the work. The cost is the
output's drift, half the squared
relative distance from the float network's (1 - cosine for unit vectors), whatever the metric: 128
answers of right or wrong
cannot tell two layers apart. The points themselves are judged by the metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engine_build.int8.frontier import Point, by_share, choice
from engine_build.int8.layers import Layer
from engine_build.samples.feed import Array
from onboarding.manifest import AccuracyRecord

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
