"""An engine's accuracy against the source model: scores, their mean with its interval, the worst,
and a verdict.

pass             the interval's lower end holds the budget, and so does the worst sample
fail             the interval's upper end misses the budget, or the worst sample does
not enough data  the budget lies within the interval, or there are fewer than 100 samples

An engine that was asked for is refused on anything but a pass, with exit code 3; `auto` chooses it
only on a pass. A float32
engine needs no pass, only no fail: its network was compared with the source model when it was
exported.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine_build.errors import SourceFault
from engine_build.judgement.bootstrap import Interval, mean_interval, ratio_interval
from engine_build.judgement.broken import refuse_broken
from engine_build.judgement.scores import (
    WORST_IS_JUDGED,
    agreements,
    cosines,
    hits,
    nearest,
    relative_scores,
)
from engine_build.order import ENOUGH_SAMPLES
from engine_build.samples.feed import Array
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import BudgetSpec
from onboarding.values import Metric

Verdict = Literal["pass", "fail", "not enough data"]
DIGITS = 6
"""Of every recorded number; the verdict follows from the recorded ones, so that a reader of the
lock can repeat it.
"""


@dataclass(frozen=True, kw_only=True)
class Standard:
    """What answers are held against."""

    reference: Array
    """The source model's rows, all finite."""
    metric: Metric
    budget: BudgetSpec
    labels: Array | None = None
    """The right class of each sample; metric accuracy needs them."""


@dataclass(frozen=True, kw_only=True)
class _Scored:
    scores: Array
    mean: float
    interval: Interval


def accuracy(subject: str, found: Array, standard: Standard) -> AccuracyRecord:
    """The record of one engine or network. Raises BrokenAnswers for NaN and Inf."""
    refuse_broken(subject, found, standard.reference)
    scored = _scored(found, standard)
    mean, worst = round(scored.mean, DIGITS), round(float(scored.scores.min()), DIGITS)
    low, high = (round(end, DIGITS) for end in scored.interval)
    has_neighbours = standard.metric == "cosine" and len(found) > 1
    floor = standard.budget.worst if standard.metric in WORST_IS_JUDGED else None
    return AccuracyRecord(
        subject=subject,
        metric=standard.metric,
        mean=mean,
        mean_interval=(low, high),
        worst=worst,
        samples=len(found),
        nearest_neighbour_agreement=_neighbour_agreement(found, standard.reference)
        if has_neighbours
        else None,
        budget_mean=standard.budget.mean,
        budget_worst=floor,
        verdict=verdict(
            (low, high), worst, len(found), mean_budget=standard.budget.mean, worst_budget=floor
        ),
    )


def verdict(
    interval: Interval,
    worst: float,
    samples: int,
    *,
    mean_budget: float,
    worst_budget: float | None,
) -> Verdict:
    """Too few samples judge nothing, whatever they say."""
    low, high = interval
    if samples < ENOUGH_SAMPLES:
        return "not enough data"
    if high < mean_budget or (worst_budget is not None and worst < worst_budget):
        return "fail"
    return "pass" if low >= mean_budget else "not enough data"


def worst_place(found: Array, standard: Standard) -> int:
    """The sample whose score is the lowest."""
    return int(_scored(found, standard).scores.argmin())


def refuse_useless_labels(reference: Array, labels: Array, dataset: str) -> None:
    """Raises SourceFault when the source model has no accuracy of which a share could be kept."""
    if not hits(reference, labels).any():
        raise SourceFault(
            f"the source model gets none of the {len(labels)} labels of {dataset} right, so no share of its accuracy can be "
            "kept; check that the labels are its classes, or judge by agreement."
        )


def _scored(found: Array, standard: Standard) -> _Scored:
    if standard.metric == "accuracy":
        assert standard.labels is not None
        return _kept(hits(found, standard.labels), hits(standard.reference, standard.labels))
    metrics: dict[Metric, Callable[[Array, Array], Array]] = {
        "cosine": cosines,
        "agreement": agreements,
        "relative_error": relative_scores,
    }
    scores = metrics[standard.metric](found, standard.reference)
    return _Scored(scores=scores, mean=float(scores.mean()), interval=mean_interval(scores))


def _kept(found: Array, source: Array) -> _Scored:
    """MLPerf's share of the source model's accuracy; a sample that only the engine has wrong scores
    0.
    """
    lost: Array = np.where((source == 1) & (found == 0), 0.0, 1.0)
    return _Scored(
        scores=lost,
        mean=float(found.mean() / source.mean()),
        interval=ratio_interval(found, source),
    )


def _neighbour_agreement(found: Array, reference: Array) -> float:
    return round(float((nearest(found) == nearest(reference)).mean()), 4)
