"""The statistics of an accuracy record that have an interval and a budget."""

from __future__ import annotations

from dataclasses import dataclass

from engine_build.evaluation.scores import Interval
from onboarding.manifest import AccuracyRecord


@dataclass(frozen=True, kw_only=True)
class BudgetedStatistic:
    """A statistic of all samples, its interval and its budget."""

    value: float
    interval: Interval
    budget: float


def budgeted_statistics(record: AccuracyRecord) -> tuple[BudgetedStatistic, ...]:
    """Return the mean and, where there is a budget for it, the share of same neighbours.

    An interval that was not recorded counts as one without width.
    """
    found = [(record.mean, record.mean_interval, record.budget_mean)]
    if record.nearest_neighbour_agreement is not None and record.budget_neighbours is not None:
        same, interval = record.nearest_neighbour_agreement, record.nearest_neighbour_interval
        found.append((same, interval, record.budget_neighbours))
    return tuple(
        BudgetedStatistic(
            value=value, interval=(value, value) if interval is None else interval, budget=budget
        )
        for value, interval, budget in found
    )
