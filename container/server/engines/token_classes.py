"""The engine of a token classifier: each token's class and probability in place of its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from container.server.engines.engine import Costs, Engine
from container.server.types import Array, Arrays
from container.triton.heads import token_classes


class TokenClassEngine:
    """An engine whose first output is logits [rows, tokens, labels].

    It answers int32 classes and float32 probabilities, [rows, longest]: batches are padded to
    different lengths, and the rows of one request may run in several of them.
    """

    def __init__(self, engine: Engine, *, longest: int) -> None:
        """`longest` is the most tokens of a row."""
        self._engine, self._longest = engine, longest
        self.slots, self.inline_rows = engine.slots, engine.inline_rows
        self.max_rows, self.sequence_buckets = engine.max_rows, engine.sequence_buckets

    def prepare(self, rows: Sequence[Any]) -> Any:
        return self._engine.prepare(rows)

    def run(self, prepared: Any, slot: int) -> Arrays:
        return tuple(map(self._fill, token_classes(self._engine.run(prepared, slot)[0])))

    def warm_up(self) -> Costs:
        return self._engine.warm_up()

    def warm_up_inline(self) -> None:
        self._engine.warm_up_inline()

    def close(self) -> None:
        self._engine.close()

    def _fill(self, values: Array) -> Array:
        whole: Array = np.zeros((len(values), self._longest), values.dtype)
        whole[:, : values.shape[1]] = values
        return whole
