"""A network's answers to samples: one row for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine_build.datasets.dataset import Array, Encoder, Feed, Sample, by_length

Answer = Callable[[Feed], Array]


def rows_in_order(answer: Answer, encoder: Encoder, samples: Sequence[Sample], batch: int) -> Array:
    """Return one row per sample, run in batches in the order given, as a server would."""
    return _rows(answer, encoder, samples, batch, range(len(samples)))


def rows_by_length(
    answer: Answer, encoder: Encoder, samples: Sequence[Sample], batch: int
) -> Array:
    """Return the same rows with less padding, for networks whose rows are independent."""
    return _rows(answer, encoder, samples, batch, by_length(encoder, samples))


def _rows(
    answer: Answer,
    encoder: Encoder,
    samples: Sequence[Sample],
    batch: int,
    order: Sequence[int],
) -> Array:
    """Hold no more than one batch as inputs."""
    rows: Array | None = None
    begin = 0
    for feed in encoder.feeds([samples[place] for place in order], batch):
        part = answer(feed)
        if rows is None:
            rows = np.empty((len(samples), *part.shape[1:]), dtype=part.dtype)
        rows[list(order[begin : begin + len(part)])] = part
        begin += len(part)
    return np.empty((0, 0), dtype=np.float32) if rows is None else rows
