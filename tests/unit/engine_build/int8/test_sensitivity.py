"""The search, on a network of known costs: each layer in INT8 adds its own error to the answer."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.int8.layers import Layer
from engine_build.int8.sensitivity import FIRST, STEPS, Search, drifts
from engine_build.judgement.accuracy import Standard, accuracy
from onboarding.model_spec import BudgetSpec

SAMPLES, VALUES = 128, 64
REFERENCE = np.random.default_rng(0).standard_normal((SAMPLES, VALUES))


def layer(node):
    return Layer(
        node=node,
        operator="MatMul",
        activation="x",
        weight="w",
        output=node,
        column_axis=1,
        follows_activation_function=False,
    )


class Network:
    """Counts its runs."""

    def __init__(self, errors):
        random = np.random.default_rng(1)
        self.errors = {
            node: size * random.standard_normal((SAMPLES, VALUES)) for node, size in errors.items()
        }
        self.runs = []

    def answers(self, int8):
        self.runs.append(tuple(int8))
        return REFERENCE + sum((self.errors[node] for node in int8), np.zeros_like(REFERENCE))


def search(errors, *, mean, shares=None, worst=None):
    network = Network(errors)
    standard = Standard(
        reference=REFERENCE, metric="cosine", budget=BudgetSpec(mean=mean, worst=worst)
    )
    shares = dict.fromkeys(errors, 1 / len(errors)) if shares is None else shares
    found = Search(
        layers=tuple(map(layer, errors)),
        shares=shares,
        reference=REFERENCE,
        answers=network.answers,
        judge=lambda rows: accuracy("search split", rows, standard),
    ).run(lambda text: None)
    return found, network


def test_everything_is_int8_where_the_budget_allows_it():
    found, _ = search({"a": 0.001, "b": 0.002}, mean=0.99)
    assert found.chosen.int8 == ("a", "b")
    assert found.chosen.share == pytest.approx(1.0)


def test_the_dear_layer_leaves_and_the_cheap_ones_stay():
    found, _ = search({"a": 0.001, "dear": 0.5, "b": 0.002}, mean=0.99)
    assert found.chosen.int8 == ("a", "b")
    assert found.leaving == ("dear", "b", "a")


def test_cost_counts_for_the_share_it_buys():
    found, _ = search(
        {"small": 0.1, "large": 0.12}, mean=0.9999, shares={"small": 0.1, "large": 0.9}
    )
    assert found.leaving[0] == "small"


def test_the_budget_edge_is_found_between_the_path_steps():
    errors = {f"l{place}": 0.05 for place in range(60)} | {
        f"dear{place}": 0.3 + place / 100 for place in range(7)
    }
    found, _ = search(errors, mean=0.92)
    counts = sorted(len(point.int8) for point in found.points)
    chosen = len(found.chosen.int8)
    above = min(count for count in counts if count > chosen)
    assert above == chosen + 1
    assert not next(point for point in found.points if len(point.int8) == above).holds


def test_a_search_runs_once_for_each_layer_and_few_times_more():
    errors = {f"l{place}": 0.05 for place in range(60)}
    _, network = search(errors, mean=0.97)
    assert sum(len(run) == 1 for run in network.runs) <= len(errors) + 1
    assert len(network.runs) <= len(errors) + STEPS + 1 + FIRST + 4


def test_drift_of_a_layer_is_what_cosine_loses_for_unit_vectors():
    unit = REFERENCE / np.linalg.norm(REFERENCE, axis=1, keepdims=True)
    moved = unit + 0.01 * np.random.default_rng(2).standard_normal(unit.shape)
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    assert np.allclose(drifts(moved, unit), 1 - (moved * unit).sum(axis=1))


def test_a_budget_that_nothing_holds_gives_the_closest_point():
    found, _ = search({"a": 0.5, "b": 0.6}, mean=0.99999)
    assert not found.chosen.holds
    assert found.chosen.int8 == ("a",)
