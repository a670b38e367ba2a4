"""A split of samples, and a search over a network's layers with it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import onnx

from engine_build.int8.calibration import Range
from engine_build.int8.layers import Layer
from engine_build.int8.sensitivity import Judge, Search
from engine_build.int8.switchable import SwitchableNetwork
from engine_build.int8.work import share
from engine_build.samples.dataset import Sample
from engine_build.samples.encoder import Encoder, by_length
from engine_build.samples.feed import Array

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
