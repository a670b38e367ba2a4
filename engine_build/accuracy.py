"""The verify step: embeddings against the source model's, on samples that calibration never saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from engine_build.encoder import Encoder, by_length
from engine_build.feed import Array, Feed
from engine_build.order import ENOUGH_SAMPLES
from engine_build.samples import Sample
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import BudgetSpec


def rows_in_order(answer: Callable[[Feed], Array], encoder: Encoder, samples: Sequence[Sample], batch: int) -> Array:
    """One row per sample, run in batches in the order given, as a server would."""
    rows: Array = np.concatenate([answer(feed) for feed in encoder.feeds(samples, batch)])
    return rows


def rows_by_length(answer: Callable[[Feed], Array], encoder: Encoder, samples: Sequence[Sample], batch: int) -> Array:
    """The same rows with less padding, for networks that no other row of a batch influences."""
    order = by_length(encoder, samples)
    found = rows_in_order(answer, encoder, [samples[index] for index in order], batch)
    rows: Array = np.empty_like(found)
    rows[order] = found
    return rows


def accuracy(subject: str, found: Array, reference: Array, budget: BudgetSpec) -> AccuracyRecord:
    """Cosine of each row with the reference's row, and how often the nearest other row is the same one."""
    cosines = np.nan_to_num(_normalised(found) * _normalised(reference), nan=-1.0).sum(axis=1)
    mean, worst = float(cosines.mean()), float(cosines.min())
    return AccuracyRecord(
        subject=subject,
        metric="cosine",
        mean=round(mean, 6),
        worst=round(worst, 6),
        samples=len(reference),
        nearest_neighbour_agreement=round(float((nearest(found) == nearest(reference)).mean()), 4),
        budget_mean=budget.mean,
        budget_worst=budget.worst,
        verdict=verdict(mean, worst, len(reference), budget),
    )


def verdict(mean: float, worst: float, samples: int, budget: BudgetSpec) -> Literal["pass", "fail", "not enough data"]:
    """Too few samples judge nothing, whatever they say."""
    if samples < ENOUGH_SAMPLES:
        return "not enough data"
    return "pass" if mean >= budget.mean and (budget.worst is None or worst >= budget.worst) else "fail"


def nearest(rows: Array) -> Array:
    """The most similar other row of each row."""
    unit = _normalised(rows)
    similarity = unit @ unit.T
    np.fill_diagonal(similarity, -np.inf)
    best: Array = similarity.argmax(axis=1)
    return best


def told(record: AccuracyRecord) -> str:
    """The record in a few words."""
    worst = "" if record.budget_worst is None else f", worst {record.budget_worst:g}"
    return (
        f"{record.subject}: mean cosine {record.mean:.5f}, worst {record.worst:.5f}, same nearest neighbour "
        f"{record.nearest_neighbour_agreement:.0%}, {record.samples} samples; budget mean {record.budget_mean:g}{worst}: "
        f"{record.verdict}"
    )


def _normalised(rows: Array) -> Array:
    unit: Array = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
