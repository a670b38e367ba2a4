"""Accuracies in words."""

from __future__ import annotations

import pytest

from engine_build.judgement.words import budget, judged, numbers, samples_needed, told, way_out
from onboarding.manifest import AccuracyRecord


def record(**changes):
    fields = {
        "subject": "int8 engine",
        "metric": "cosine",
        "mean": 0.991,
        "mean_interval": (0.989, 0.993),
        "worst": 0.96,
        "samples": 200,
        "nearest_neighbour_agreement": 0.9,
        "budget_mean": 0.99,
        "budget_worst": 0.95,
        "verdict": "not enough data",
    }
    return AccuracyRecord(**(fields | changes))


def test_record_is_told_with_its_interval_and_budget():
    assert told(record(verdict="pass")) == (
        "int8 engine: mean cosine 0.99100 (95 % interval 0.98900 to 0.99300) and worst 0.96000 on 200 samples, "
        "same nearest neighbour 90%; budget mean 0.99 and worst 0.95: pass"
    )


def test_worst_is_not_told_where_it_says_nothing():
    found = record(metric="agreement", budget_worst=None, nearest_neighbour_agreement=None)
    assert "worst" not in numbers(found) + budget(found) + told(found)


def test_unclear_verdict_says_how_many_samples_would_tell():
    assert "lies within the interval" in judged(record())
    assert way_out(record()) == (
        "give the accuracy dataset about 880 samples so that the interval is narrower, lower the budget, or ask for fp32"
    )


@pytest.mark.parametrize(
    ("mean", "needed"), [(0.99, None), (0.9900001, None), (0.9895, 10780), (0.985, 563)]
)
def test_samples_needed_grow_as_the_mean_nears_the_budget(mean, needed):
    assert samples_needed(record(mean=mean)) == needed


def test_too_few_samples_are_asked_for_by_number():
    found = record(samples=60)
    assert "fewer than 100 samples" in judged(found) and "100 samples or more" in way_out(found)


def test_failed_budget_has_other_ways_out():
    assert "another precision" in way_out(
        record(verdict="fail")
    ) and "outside the budget" in judged(record(verdict="fail"))
