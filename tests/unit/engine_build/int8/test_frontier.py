"""Points, and the choice among them."""

from __future__ import annotations

import pytest

from engine_build.int8.frontier import Point, choice, table
from onboarding.manifest import AccuracyRecord


def point(share, mean, worst=0.99, low=None):
    record = AccuracyRecord(
        subject="search split",
        metric="cosine",
        mean=mean,
        mean_interval=(mean if low is None else low, 1.0),
        worst=worst,
        samples=128,
        nearest_neighbour_agreement=0.9,
        budget_mean=0.99,
        budget_worst=0.95,
        verdict="pass",
    )
    return Point(int8=tuple(map(str, range(round(share * 10)))), share=share, accuracy=record)


def test_choice_is_the_largest_share_inside_the_budget():
    points = [point(0.3, 0.999), point(0.9, 0.98), point(0.7, 0.995)]
    assert choice(points).share == 0.7


@pytest.mark.parametrize(
    "broken", [{"mean": 0.98}, {"mean": 0.995, "worst": 0.94}, {"mean": 0.991, "low": 0.989}]
)
def test_mean_worst_and_the_lower_end_of_the_interval_all_count(broken):
    assert choice([point(0.9, **broken), point(0.4, 0.995)]).share == 0.4


def test_without_a_point_inside_the_budget_the_closest_is_shown():
    assert choice([point(0.9, 0.90), point(0.5, 0.97), point(0.7, 0.95)]).share == 0.5


def test_facts_have_what_a_plot_needs():
    facts = point(0.7, 0.995).facts(chosen=True)
    assert facts == {
        "share": 0.7,
        "mean": 0.995,
        "worst": 0.99,
        "nearest_neighbour_agreement": 0.9,
        "split": "search",
        "holds": True,
        "int8_layers": 7,
        "chosen": True,
    }


def test_table_marks_the_chosen_point_and_starts_with_the_largest_share():
    points = [point(0.3, 0.999), point(0.7, 0.995)]
    assert table(points, points[1]).splitlines()[1:] == [
        "     70.0%       7   0.99500   0.99000    0.900  <- chosen",
        "     30.0%       3   0.99900   0.99000    0.900",
    ]
