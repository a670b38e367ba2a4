"""What padding costs, and what is proposed."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine_build.errors import InputRefused
from engine_build.lengths.padding import bucketed, mixed, row_seconds, useful_at_shapes
from engine_build.lengths.proposal import as_data, as_text, percentiles, proposal
from onboarding.manifest import BenchmarkRecord
from onboarding.model_spec import OptimizationProfileSpec

PROFILES = (OptimizationProfileSpec(batch=(1, 8, 32), sequence=(8, 64, 128)),)
RANDOM = np.random.default_rng(0)
TEXTS = np.minimum(RANDOM.geometric(1 / 16, size=500) + 3, 200)


def benchmark_record(batch, sequence, rows_per_second):
    names = ("average_ms", "p50_ms", "p95_ms", "p99_ms")
    return BenchmarkRecord(
        runtime="tensorrt",
        precision="fp16",
        batch=batch,
        sequence=sequence,
        rows_per_second=rows_per_second,
        repetitions=9,
        **dict.fromkeys(names, 1000 * batch / rows_per_second),
    )


RECORDS = (
    benchmark_record(1, 8, 1000.0),
    benchmark_record(8, 64, 500.0),
    benchmark_record(32, 128, 200.0),
)


def test_batches_as_they_come_are_as_long_as_chance_makes_them():
    draws = RANDOM.choice(TEXTS, size=(20_000, 8)).max(axis=1).mean()
    assert mixed("m", TEXTS, 8).mean == pytest.approx(draws, rel=0.01)
    assert mixed("m", TEXTS, 1).mean == pytest.approx(TEXTS.mean())


def test_padding_wasted_is_what_is_no_text():
    way = bucketed("b", np.array([4, 8, 8, 12]), (8, 16))
    assert way.mean == 10.0 and way.wasted(np.array([4, 8, 8, 12])) == pytest.approx(0.2)


def test_batches_within_buckets_pad_no_more_than_to_the_edge():
    lengths = np.minimum(TEXTS, 128)
    edges = (16, 48, 128)
    assert mixed("m", lengths, 8, edges).mean < bucketed("b", lengths, edges).mean
    assert mixed("m", lengths, 8, edges).shares.sum() == pytest.approx(1.0)


def test_row_of_a_length_takes_what_was_measured_beside_it():
    seconds = row_seconds(RECORDS)
    assert seconds(np.array([4, 8, 36, 64, 256])) == pytest.approx(
        [0.001, 0.001, 0.0015, 0.002, 0.01]
    )
    assert row_seconds(()) is None


def test_useful_tokens_of_a_shape_are_those_of_texts_that_fit():
    shapes = useful_at_shapes(RECORDS, np.array([4, 8, 64, 128]))
    assert [shape["share_that_fits"] for shape in shapes] == [0.5, 0.75, 1.0]
    rates = [shape["useful_tokens_per_second"] for shape in shapes]
    assert rates == pytest.approx([6000.0, 500 * 76 / 3, 10200.0], abs=0.1)
    (short,) = useful_at_shapes((benchmark_record(1, 2, 10.0),), np.array([4]))
    assert short["useful_tokens_per_second"] == 0.0


def test_proposal_wastes_less_than_the_present_profiles():
    result = proposal(TEXTS.tolist(), PROFILES, 4)
    present, as_they_come, equal, best, both = (way.wasted(result.lengths) for way in result.ways)
    assert both < best < equal < present and best < as_they_come
    assert result.cut == (TEXTS > 128).sum() and result.lengths.max() <= 128


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(st.integers(1, 400), min_size=1, max_size=60), st.integers(1, 6))
def test_proposed_profiles_serve_every_length_that_is_served_today(lengths, count):
    profiles = proposal(lengths, PROFILES, count).profiles
    ranges = [profile.sequence for profile in profiles]
    assert ranges[0][0] <= 8 and ranges[-1][2] == 128
    assert all(after[0] == before[2] + 1 for before, after in itertools.pairwise(ranges))
    batches = [profile.batch for profile in profiles]
    assert all(low <= opt <= high for low, opt, high in (*ranges, *batches))


def test_opt_batches_hold_about_the_tokens_of_the_present_one():
    profiles = proposal([16] * 9 + [128], PROFILES, 2).profiles
    assert [(profile.batch, profile.sequence) for profile in profiles] == [
        ((1, 32, 32), (8, 16, 16)),
        ((1, 4, 32), (17, 128, 128)),
    ]


def test_report_has_every_number_and_lines_for_the_model_file():
    result = proposal(TEXTS.tolist(), PROFILES, 2)
    data, text = as_data(result, RECORDS), as_text(result, RECORDS)
    assert data["buckets"] == list(result.edges) and data["tokens"] == percentiles(result.lengths)
    rates = [way["estimated_useful_tokens_per_second"] for way in data["ways"]]
    assert rates[3] > rates[0] > 0
    assert "optimization_profiles:\n    - {batch: [1, " in text and "measured shape" in text


def test_report_without_a_benchmark_leaves_speeds_out():
    result = proposal(TEXTS.tolist(), PROFILES, 2)
    rates = {way["estimated_useful_tokens_per_second"] for way in as_data(result, ())["ways"]}
    assert rates == {None} and "measured shape" not in as_text(result, ())


def test_refuses_a_model_without_a_sequence_axis():
    with pytest.raises(InputRefused, match="no sequence axis"):
        proposal([4], (OptimizationProfileSpec(batch=(1, 2, 4)),), 2)
