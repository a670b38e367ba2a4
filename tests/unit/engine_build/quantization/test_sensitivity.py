"""Points, the choice among them, and the search on a network of known costs."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.evaluation.accuracy import Standard, accuracy
from engine_build.quantization.sensitivity import (
    FIRST,
    STEPS,
    Point,
    Search,
    best_point,
    drifts,
    format_points,
    holds_budget,
)
from onboarding.manifest import AccuracyRecord
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.quantization.graphs import layer


def point(share, mean, worst=0.99, low=None, **changes):
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
    ).model_copy(update=changes)
    return Point(int8=tuple(map(str, range(round(share * 10)))), share=share, accuracy=record)


WIDE = {"nearest_neighbour_interval": (0.8, 0.95), "budget_neighbours": 0.9}


@pytest.mark.parametrize(
    ("largest", "share"),
    [
        ({"mean": 0.995}, 0.9),
        ({"mean": 0.98}, 0.7),
        ({"mean": 0.995, "worst": 0.94}, 0.7),
        ({"mean": 0.991, "low": 0.989}, 0.7),
        ({"mean": 0.995, "nearest_neighbour_agreement": 0.89, **WIDE}, 0.7),
        ({"mean": 0.995, "nearest_neighbour_agreement": 0.91, **WIDE}, 0.9),
    ],
)
def test_choice_is_the_largest_share_inside_every_budget(largest, share):
    points = [point(0.3, 0.999), point(0.9, **largest), point(0.7, 0.995)]
    assert best_point(points).share == share


def test_without_a_point_inside_the_budget_the_closest_is_chosen():
    assert best_point([point(0.9, 0.90), point(0.5, 0.97), point(0.7, 0.95)]).share == 0.5


def test_a_choice_is_confirmed_by_the_lower_end_of_the_neighbours():
    record = point(0.9, 0.995, budget_neighbours=0.9).accuracy
    assert holds_budget(record, confirms=True)
    unsure = record.model_copy(update={"nearest_neighbour_interval": (0.89, 0.95)})
    assert holds_budget(unsure) and not holds_budget(unsure, confirms=True)


def test_facts_have_what_a_plot_needs_and_the_table_marks_the_chosen_point():
    assert point(0.7, 0.995).facts(chosen=True) == {
        "share": 0.7,
        "mean": 0.995,
        "worst": 0.99,
        "nearest_neighbour_agreement": 0.9,
        "split": "search",
        "holds": True,
        "int8_layers": 7,
        "chosen": True,
    }
    points = [point(0.3, 0.999), point(0.7, 0.995)]
    assert format_points(points, points[1]).splitlines()[1:] == [
        "     70.0%       7   0.99500   0.99000    0.900  <- chosen",
        "     30.0%       3   0.99900   0.99000    0.900",
    ]


REFERENCE = np.random.default_rng(0).standard_normal((128, 64))


def search(errors, *, mean, shares=None):
    """The result of a search where each layer adds its own error, and the layers of every run."""
    random, runs = np.random.default_rng(1), []
    noise = {node: size * random.standard_normal(REFERENCE.shape) for node, size in errors.items()}

    def rows(int8):
        runs.append(tuple(int8))
        return REFERENCE + sum((noise[node] for node in int8), np.zeros_like(REFERENCE))

    budget = BudgetSpec(mean=mean)
    standard = Standard(reference=REFERENCE, metric="cosine", budget=budget)
    result = Search(
        layers=tuple(map(layer, errors)),
        shares=shares or dict.fromkeys(errors, 1 / len(errors)),
        reference=REFERENCE,
        rows=rows,
        score=lambda rows: accuracy("search split", rows, standard),
    ).run(lambda text: None)
    return result, runs


@pytest.mark.parametrize(
    ("errors", "mean", "int8", "leaving"),
    [
        ({"a": 0.001, "b": 0.002}, 0.99, ("a", "b"), ("b", "a")),
        (
            {"a": 0.001, "expensive": 0.5, "b": 0.002},
            0.99,
            ("a", "b"),
            ("expensive", "b", "a"),
        ),
        # Nothing holds the budget: the closest point.
        ({"a": 0.5, "b": 0.6}, 0.99999, ("a",), ("b", "a")),
    ],
)
def test_the_expensive_layers_leave_until_the_budget_holds(errors, mean, int8, leaving):
    result, _ = search(errors, mean=mean)
    assert (result.chosen.int8, result.leaving) == (int8, leaving)
    assert result.chosen.share == pytest.approx(len(int8) / len(errors))
    assert result.chosen.holds == (mean == 0.99)


def test_cost_counts_for_the_share_it_buys():
    shares = {"small": 0.1, "large": 0.9}
    result, _ = search({"small": 0.1, "large": 0.12}, mean=0.9999, shares=shares)
    assert result.leaving[0] == "small"


def test_the_budget_edge_is_found_in_a_run_for_each_layer_and_few_times_more():
    errors = {f"l{index}": 0.05 for index in range(60)}
    errors |= {f"expensive{index}": 0.3 + index / 100 for index in range(7)}
    result, runs = search(errors, mean=0.92)
    holds = {len(point.int8): point.holds for point in result.points}
    chosen = len(result.chosen.int8)
    assert holds[chosen] and not holds[chosen + 1]
    assert sum(len(run) == 1 for run in runs) <= len(errors) + 1
    assert len(runs) <= len(errors) + STEPS + 1 + FIRST + 4


def test_drift_of_a_layer_is_what_cosine_loses_for_unit_vectors():
    unit = REFERENCE / np.linalg.norm(REFERENCE, axis=1, keepdims=True)
    moved = unit + 0.01 * np.random.default_rng(2).standard_normal(unit.shape)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(drifts(moved, unit), 1 - (moved * unit).sum(axis=1))
