"""A network's answers to samples: one row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine_build.datasets.dataset import Array, Encoder, Feed, Sample, by_length

Answer = Callable[[Feed], Array]


def rows_by_length(
    answer: Answer, encoder: Encoder, samples: Sequence[Sample], batch: int
) -> Array:
    """Return one row per sample with little padding, for networks whose rows are independent."""
    return rows_in_order(answer, encoder, samples, batch, by_length(encoder, samples))


def rows_in_order(
    answer: Answer,
    encoder: Encoder,
    samples: Sequence[Sample],
    batch: int,
    order: Sequence[int] | None = None,
) -> Array:
    """Return one row per sample, run in batches of the samples as given, or in another order."""
    order = range(len(samples)) if order is None else order
    rows: Array = np.empty((0, 0), dtype=np.float32)
    begin = 0
    for feed in encoder.feeds([samples[index] for index in order], batch):
        part = encoder.aligned(answer(feed), feed)
        if begin == 0:
            rows = np.empty((len(samples), *part.shape[1:]), dtype=part.dtype)
        rows[list(order[begin : begin + len(part)])] = part
        begin += len(part)
    return rows
