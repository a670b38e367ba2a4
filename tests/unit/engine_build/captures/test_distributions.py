"""Distances of inputs: what chance does, and what a shift does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine_build.captures.distributions import (
    category_distance,
    input_distances,
    numeric_distance,
)
from engine_build.onnx_graph.network_store import Network
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.tiny import sample_texts, word_tokenizer

pytestmark = pytest.mark.unit
RANDOM = np.random.default_rng(3)


def test_two_samples_of_one_distribution_stay_below_their_noise():
    data = RANDOM.standard_normal(400)
    above = [
        numeric_distance("x", RANDOM.standard_normal(count), data) for count in (100, 300) * 100
    ]
    assert sum(item.index > item.noise for item in above) <= 2
    assert not any(item.has_drifted for item in above)
    mean = np.mean([item.index for item in above if item.captured == 300])
    assert mean == pytest.approx(9 * (1 / 300 + 1 / 400), rel=0.3)


def test_shift_by_one_deviation_has_drifted():
    data = RANDOM.standard_normal(400)
    found = numeric_distance("x", RANDOM.standard_normal(300) + 1, data)
    assert found.has_drifted and (found.captured, found.data) == (300, 400)


def test_few_samples_have_more_noise_than_they_could_show():
    found = category_distance("script", ["CYRILLIC"] * 3, ["LATIN"] * 400)
    assert found.noise > 3


def test_values_that_are_all_one_have_no_bins_and_no_drift():
    found = numeric_distance("x", np.ones(100), np.ones(100))
    assert (found.index, found.has_drifted) == (0.0, False)


@pytest.fixture
def network(tmp_path):
    path = tmp_path / "tokenizer.json"
    word_tokenizer().save(str(path))
    return Network(
        precision="float", path=Path("model.onnx"), inputs=(), outputs=(), facts={}, tokenizer=path
    )


def test_longer_texts_of_another_script_and_vocabulary_drift_by_each_property(network):
    data = sample_texts(200, seed=1)
    same = input_distances(network, sample_texts(200, seed=2), data)
    assert not any(item.has_drifted for item in same)
    other = ["поезд стоит на станции " * 5 for _ in range(200)]
    drifted = {item.name for item in input_distances(network, other, data) if item.has_drifted}
    assert drifted == {"tokens of a text", "script of a text", "share of unknown tokens"}


def test_arrays_drift_by_the_input_whose_values_moved():
    records = tuple(
        TensorRecord(name=name, datatype="FP32", shape=(-1, 4)) for name in ("here", "there")
    )
    network = Network(
        precision="float", path=Path("model.onnx"), inputs=records, outputs=(), facts={}
    )

    def rows(shift):
        return [
            {"here": RANDOM.standard_normal(4), "there": RANDOM.standard_normal(4) + shift}
            for _ in range(200)
        ]

    found = input_distances(network, rows(3), rows(0))
    assert {item.name for item in found if item.has_drifted} == {
        "least value of there",
        "mean value of there",
        "largest value of there",
    }
