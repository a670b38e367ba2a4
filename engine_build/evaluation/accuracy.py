"""NaN and Inf in answers: named, and never scored.

An engine's accuracy against the source model: scores, their mean with its interval, the worst,
and a verdict.

pass             the interval's lower end holds the budget, and so does the worst sample
fail             the interval's upper end misses the budget, or the worst sample does
not enough data  the budget lies within the interval, or there are fewer than 100 samples

An engine that was asked for is refused on anything but a pass, with exit code 3; `auto` chooses it
only on a pass. A float32
engine needs no pass, only no fail: its network was compared with the source model when it was
exported.

Accuracies in words: what was found, what was wanted, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from engine_build.datasets.feed import Array
from engine_build.errors import BudgetMissed, SourceFault
from engine_build.evaluation.scores import (
    WORST_IS_JUDGED,
    Interval,
    agreements,
    cosines,
    hits,
    mean_interval,
    nearest,
    ratio_interval,
    relative_scores,
)
from engine_build.request import ENOUGH_SAMPLES
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import BudgetSpec
from onboarding.values import Metric


class BrokenAnswers(BudgetMissed):
    """An engine answers NaN or Inf."""


def refuse_broken(subject: str, found: Array, reference: Array) -> None:
    """Raises SourceFault when the answers do not fit the reference or it is broken itself, and
    BrokenAnswers for the engine's.
    """
    if found.shape != reference.shape:
        raise SourceFault(
            f"{subject} answers with shape {list(found.shape)}, the source model with {list(reference.shape)}; "
            "export the source again, or delete the work folder."
        )
    if (told := _told(reference)) is not None:
        raise SourceFault(
            f"the source model gives {told}; repair its weights, or the samples, before it is judged by."
        )
    if (told := _told(found)) is not None:
        raise BrokenAnswers(
            f"{subject} gives {told}: values beyond its precision's range are the usual cause; ask for precision bf16 or fp32, "
            "or keep the layers that overflow in fp32."
        )


def _told(rows: Array) -> str | None:
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    return (
        f"NaN or Inf for {len(broken)} of {len(rows)} samples, the first being sample {broken[0] + 1}"
        if len(broken)
        else None
    )


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


NAMES = {
    "cosine": "cosine",
    "agreement": "agreement with the source model",
    "accuracy": "share of the source model's accuracy",
    "relative_error": "score (1 less the relative error)",
}
MOST_SAMPLES = 100_000
"""An estimate above this is not worth its digits."""


def told(record: AccuracyRecord) -> str:
    """The record in a few words."""
    neighbours = record.nearest_neighbour_agreement
    same = "" if neighbours is None else f", same nearest neighbour {neighbours:.0%}"
    return f"{record.subject}: {numbers(record)}{same}; budget {budget(record)}: {record.verdict}"


def numbers(record: AccuracyRecord) -> str:
    """What was found."""
    ends = record.mean_interval
    interval = "" if ends is None else f" (95 % interval {ends[0]:.5f} to {ends[1]:.5f})"
    worst = (
        f" and worst {record.worst:.5f}" if record.metric in ("cosine", "relative_error") else ""
    )
    return f"mean {NAMES[record.metric]} {record.mean:.5f}{interval}{worst} on {record.samples} samples"


def budget(record: AccuracyRecord) -> str:
    """What was wanted."""
    return f"mean {record.budget_mean:g}" + (
        "" if record.budget_worst is None else f" and worst {record.budget_worst:g}"
    )


def judged(record: AccuracyRecord) -> str:
    """The verdict, and for one that is not clear, what would make it so."""
    if record.verdict != "not enough data":
        return (
            f"{'within' if record.verdict == 'pass' else 'outside'} the budget of {budget(record)}"
        )
    if record.samples < ENOUGH_SAMPLES:
        return f"not enough data to judge it: fewer than {ENOUGH_SAMPLES} samples"
    return f"not enough data to judge it: the budget of {budget(record)} lies within the interval"


def way_out(record: AccuracyRecord) -> str:
    """What the user may do about a verdict that is no pass."""
    if record.verdict == "fail":
        return "lower the budget, ask for another precision, or give better calibration samples"
    if record.samples < ENOUGH_SAMPLES:
        return (
            f"give the accuracy dataset {ENOUGH_SAMPLES} samples or more, or ask for precision fp32"
        )
    needed = samples_needed(record)
    count = "more" if needed is None else f"about {needed:,}"
    return f"give the accuracy dataset {count} samples so that the interval is narrower, lower the budget, or ask for fp32"


def samples_needed(record: AccuracyRecord) -> int | None:
    """How many samples would tell, if the mean stays where it is: intervals narrow with the root of
    the samples.
    """
    distance = abs(record.mean - record.budget_mean)
    if record.mean_interval is None or distance == 0:
        return None
    low, high = record.mean_interval
    reach = record.mean - low if record.mean > record.budget_mean else high - record.mean
    needed = round(record.samples * (reach / distance) ** 2 * 1.1)
    return None if needed > MOST_SAMPLES else max(needed, record.samples + 1)
