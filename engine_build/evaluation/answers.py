"""What a network answers to samples: one row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine_build.datasets.dataset import Sample
from engine_build.datasets.encoder import Encoder, by_length
from engine_build.datasets.feed import Array, Feed


def rows_in_order(
    answer: Callable[[Feed], Array], encoder: Encoder, samples: Sequence[Sample], batch: int
) -> Array:
    """One row per sample, run in batches in the order given, as a server would; no more than one
    batch is held as inputs.
    """
    return _rows(answer, encoder, samples, batch, range(len(samples)))


def rows_by_length(
    answer: Callable[[Feed], Array], encoder: Encoder, samples: Sequence[Sample], batch: int
) -> Array:
    """The same rows with less padding, for networks that no other row of a batch influences."""
    return _rows(answer, encoder, samples, batch, by_length(encoder, samples))


def _rows(
    answer: Callable[[Feed], Array],
    encoder: Encoder,
    samples: Sequence[Sample],
    batch: int,
    order: Sequence[int],
) -> Array:
    rows: Array | None = None
    begin = 0
    for feed in encoder.feeds([samples[place] for place in order], batch):
        found = answer(feed)
        if rows is None:
            rows = np.empty((len(samples), *found.shape[1:]), dtype=found.dtype)
        rows[list(order[begin : begin + len(found)])] = found
        begin += len(found)
    return np.empty((0, 0), dtype=np.float32) if rows is None else rows
