"""What the benchmarks of comparisons and of sizing conclude from what they measured."""

from __future__ import annotations

import pytest

from benchmarks import compare, sizing

pytestmark = pytest.mark.unit


def run(rates, loads):
    return {"rates": rates, "loads": loads, "controls": [["a", 10.0, 9.0]]}


def measures(first, second, kept):
    found = compare._measures(first, second, kept, 100.0, 90.0)
    return {measure.name: measure for measure in found}


def test_a_cell_that_was_kept_is_not_loaded_again():
    rates = {"a": 10.0, "b": 5.0, "c": None}
    # One of three was kept; two loads, and the control.
    found = measures(run(rates, ["b", "c", "a"]), run(rates, []), 1)
    assert found["finished cells loaded again after the kill"].value == 0
    assert found["Kendall's tau of two runs"].verdict == "held"
    found = measures(run(rates, ["a", "b", "c", "a"]), run(rates, []), 1)
    assert found["finished cells loaded again after the kill"].verdict == "missed"


def test_rankings_are_by_rate_and_what_held_nothing_is_last():
    assert compare.ranking({"a": None, "b": 2.0, "c": 3.0}) == ["c", "b", "a"]
    first, second = {"a": 3.0, "b": 2.0, "c": 1.0}, {"a": 1.0, "b": 2.0, "c": 3.0}
    assert measures(run(first, []), run(second, []), 0)["Kendall's tau of two runs"].value == -1


def test_an_outcome_of_replays_is_that_of_most():
    late, early = sizing.SLO_MS + 1, sizing.SLO_MS
    assert [sizing._balance(v) for v in ([], [early], [early, late], [late, late])] == [0, 1, 0, -2]
