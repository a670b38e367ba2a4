"""Accuracies in words: what was found, what was wanted, and what to do about it."""

from __future__ import annotations

from engine_build.order import ENOUGH_SAMPLES
from onboarding.manifest import AccuracyRecord

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
