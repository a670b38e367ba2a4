"""Accuracy records in words: scores, budgets, verdicts, and the way out of each."""

from __future__ import annotations

from engine_build.evaluation.budgets import budgeted_statistics
from engine_build.evaluation.scores import METRICS_WITH_WORST
from engine_build.request import ENOUGH_SAMPLES
from onboarding.manifest import AccuracyRecord

METRIC_NAMES = {
    "cosine": "cosine",
    "agreement": "agreement with the source model",
    "accuracy": "share of the source model's accuracy",
    "order": "pairs in the source model's order",
    "relative_error": "score (1 less the relative error)",
}
MOST_SAMPLES = 100_000
"""An estimate above this is not worth its digits."""


def format_record(record: AccuracyRecord) -> str:
    """Return the record in one line."""
    return (
        f"{record.subject}: {format_scores(record)}; budget {format_budget(record)}: "
        f"{record.verdict}"
    )


def format_scores(record: AccuracyRecord) -> str:
    """Return the measured scores, such as "mean cosine 0.99816 … on 640 samples, …"."""
    ends = record.mean_interval
    interval = "" if ends is None else f" (95 % interval {ends[0]:.5f} to {ends[1]:.5f})"
    worst = f" and worst {record.worst:.5f}" if record.metric in METRICS_WITH_WORST else ""
    name = METRIC_NAMES[record.metric]
    scores = f"mean {name} {record.mean:.5f}{interval}{worst} on {record.samples} samples"
    return f"{scores}{_format_neighbours(record)}"


def format_budget(record: AccuracyRecord) -> str:
    """Return the budget, such as "mean 0.99 and worst 0.97"."""
    parts = [f"mean {record.budget_mean:g}"]
    if record.budget_worst is not None:
        parts.append(f"worst {record.budget_worst:g}")
    if record.budget_neighbours is not None:
        parts.append(f"same nearest neighbour {record.budget_neighbours:g}")
    return " and ".join(parts)


def format_verdict(record: AccuracyRecord) -> str:
    """Return the verdict and, for one that is not clear, the reason."""
    budget = format_budget(record)
    if record.verdict != "not enough data":
        return f"{'within' if record.verdict == 'pass' else 'outside'} the budget of {budget}"
    if record.samples < ENOUGH_SAMPLES:
        return f"not enough data to judge it: fewer than {ENOUGH_SAMPLES} samples"
    return f"not enough data to judge it: the budget of {budget} lies within an interval"


def way_out(record: AccuracyRecord) -> str:
    """Return what the user may do about a verdict that is no pass."""
    if record.verdict == "fail":
        return "lower the budget, ask for another precision, or give better calibration samples"
    give = "give the accuracy dataset"
    if record.samples < ENOUGH_SAMPLES:
        return f"{give} {ENOUGH_SAMPLES} samples or more, or ask for precision fp32"
    needed = samples_needed(record)
    count = "more" if needed is None else f"about {needed:,}"
    narrower = f"{give} {count} samples so that the interval is narrower"
    return f"{narrower}, lower the budget, or ask for fp32"


def samples_needed(record: AccuracyRecord) -> int | None:
    """Return how many samples would decide, if the statistics stay where they are.

    Intervals narrow with the root of the samples.
    """
    needed = record.samples + 1
    for item in budgeted_statistics(record):
        low, high = item.interval
        if not low < item.budget <= high:
            continue
        distance = abs(item.value - item.budget)
        if distance == 0:
            return None
        width = item.value - low if item.value > item.budget else high - item.value
        needed = max(needed, round(record.samples * (width / distance) ** 2 * 1.1))
    return None if needed > MOST_SAMPLES else needed


def _format_neighbours(record: AccuracyRecord) -> str:
    if record.nearest_neighbour_agreement is None:
        return ""
    ends = record.nearest_neighbour_interval
    interval = "" if ends is None else f" ({ends[0]:.3f} to {ends[1]:.3f})"
    return f", same nearest neighbour {record.nearest_neighbour_agreement:.3f}{interval}"
