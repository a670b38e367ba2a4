"""The saving of another padding, measured: data whose saving is known."""

from __future__ import annotations

import numpy as np
import pytest

from roundhouse.lengths.saving import measured_saving

pytestmark = pytest.mark.unit
TRUTH = 0.2


def requests(count, rounds, *, seed, noise=0.0, shift=0.0):
    """Times before and after, of requests that save TRUTH of their time in the mean of all.

    `noise`: of each run; `shift`: of a whole round, which is the same for both.
    """
    random = np.random.default_rng(seed)
    lengths = random.uniform(1.0, 20.0, (count, 1))
    # Long requests save more, so that the saving of a sample depends on which ones are in it.
    saved = TRUTH * lengths * lengths / ((20**3 - 1) / 3) * ((20**2 - 1) / 2)
    common = np.exp(random.normal(0.0, shift, (1, rounds)))

    def times(base):
        return (base * common * np.exp(random.normal(0.0, noise, (count, rounds)))).tolist()

    return times(lengths), times(lengths - saved)


def test_times_without_noise_give_the_saving_itself():
    before, after = requests(200, 4, seed=1)
    found = measured_saving(before, after, is_sample=False)
    exact = 1 - np.sum(after) / np.sum(before)
    assert found.share == found.low == found.high == pytest.approx(exact)
    assert (found.requests, found.rounds, found.is_shown) == (200, 4, True)


def test_what_disturbs_a_whole_round_changes_nothing():
    before, after = requests(50, 9, seed=2, shift=0.5)
    quiet = measured_saving(*requests(50, 9, seed=2), is_sample=False)
    found = measured_saving(before, after, is_sample=False)
    assert found.share == pytest.approx(quiet.share)
    assert found.high - found.low < 0.01


@pytest.mark.parametrize("count", [15, 120])
def test_interval_of_a_sample_holds_the_saving_of_all_requests(count):
    found = [
        measured_saving(*requests(count, 5, seed=seed, noise=0.1), is_sample=True)
        for seed in range(50)
    ]
    # 95 % in the mean; a bootstrap of 15 requests is a little narrow.
    assert sum(item.low <= TRUTH <= item.high for item in found) >= 43
    assert np.mean([item.share for item in found]) == pytest.approx(TRUTH, abs=0.01)


def test_no_saving_is_shown_where_there_is_none():
    random = np.random.default_rng(3)
    before, after = (random.uniform(1.0, 2.0, (15, 4)).tolist() for _ in range(2))
    found = measured_saving(before, after, is_sample=True)
    assert found.low < 0 < found.high and not found.is_shown


def test_interval_narrows_with_more_requests():
    few, many = (
        measured_saving(*requests(count, 5, seed=4, noise=0.1), is_sample=True)
        for count in (10, 250)
    )
    assert many.high - many.low < (few.high - few.low) / 2
