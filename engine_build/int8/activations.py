"""What tensors of a network hold while samples pass through it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx

from engine_build.runtimes.ort import OrtNetwork
from engine_build.samples.feed import ATTENTION_MASK, Array, Feed


class Activations:
    """Some tensors of a network, seen batch by batch; padding is left out."""

    def __init__(self, model: onnx.ModelProto, tensors: Mapping[str, int]) -> None:
        """`tensors` maps names to the axis of their channels.

        The model is changed for a moment: a copy may be gigabytes.
        """
        self._tensors = dict(tensors)
        own = len(model.graph.output)
        present = {each.name for each in [*model.graph.output, *model.graph.input]}
        model.graph.output.extend(
            onnx.ValueInfoProto(name=name) for name in self._tensors if name not in present
        )
        self._inputs = {each.name for each in model.graph.input} & set(self._tensors)
        self._network = OrtNetwork(model.SerializeToString())
        del model.graph.output[own:]

    def rows(self, feeds: Iterable[Feed]) -> Iterator[dict[str, Array]]:
        """For each feed, each tensor as [positions, channels]."""
        for feed in feeds:
            mask = feed.get(ATTENTION_MASK)
            kept = None if mask is None else mask == 1
            yield {
                name: _rows(value, self._tensors[name], kept)
                for name, value in self.values(feed).items()
            }

    def values(self, feed: Feed) -> dict[str, Array]:
        """Each tensor for one feed."""
        computed = [name for name in self._tensors if name not in self._inputs]
        found = self._network.values(computed, feed)
        return {name: feed[name] if name in self._inputs else found[name] for name in self._tensors}


def _rows(value: Array, axis: int, kept: Array | None) -> Array:
    if kept is not None and value.shape[: kept.ndim] == kept.shape:
        value = value[kept]
    elif kept is not None and value.ndim == 2 and len(value) == kept.size:
        value = value[kept.reshape(-1)]
    if value.ndim == 1:
        return value[:, None]
    last: Array = np.moveaxis(value, axis if value.ndim > 2 else -1, -1)
    rows: Array = last.reshape(-1, last.shape[-1])
    return rows
