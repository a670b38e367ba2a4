"""Speed against noise: paired rounds in, a record out."""

from __future__ import annotations

import numpy as np
import pytest

from engine_build.judgement.speedup import is_faster, needed, speedup, told
from engine_build.runtimes.rounds import Latencies
from engine_build.samples.feed import Shape

SHAPE = Shape(batch=8, sequence=64)


def measured(candidate, control, *, noise=0.02, rounds=40, seed=0):
    """Rounds of a baseline of 10 ms, a candidate and a control so many times as fast, under load
    that comes and goes.
    """
    random = np.random.default_rng(seed)
    load = np.where(np.sin(np.arange(rounds) / 5) > 0, 2.0, 1.0)[:, None]
    means = 10.0 / np.array([1.0, candidate, control])
    found = means * load * np.exp(noise * random.standard_normal((rounds, 3)))
    return Latencies(shape=SHAPE, milliseconds=found[:, :, None])


def record(*arguments, **keywords):
    return speedup(
        measured(*arguments, **keywords), candidate=(1, "int8"), baseline=(0, "fp32"), control=2
    )


def test_gain_above_the_noise_is_faster():
    found = record(2.0, 1.0)
    assert is_faster(found)
    assert found.ratio == pytest.approx(2.0, rel=0.03) and found.low <= found.ratio <= found.high
    assert (found.candidate, found.baseline, found.batch, found.sequence) == ("int8", "fp32", 8, 64)


def test_control_that_differs_more_than_the_gain_is_not_faster():
    assert not is_faster(record(1.3, 1.35))
    assert not is_faster(record(1.3, 1 / 1.35)), "noise in either direction is noise"


def test_noise_is_what_rounds_differ_by_and_more_rounds_do_not_shrink_it():
    few, many = record(1.2, 1.0, noise=0.2, rounds=50), record(1.2, 1.0, noise=0.2, rounds=5000)
    assert many.high - many.low < 0.2 * (few.high - few.low)
    assert needed(many) > 1.3 and not is_faster(many)


def test_gain_below_five_percent_is_not_worth_it():
    found = record(1.03, 1.0, noise=0.001)
    assert found.low > max(1.0, found.control_high)
    assert needed(found) == 1.05 and not is_faster(found)


def test_slower_is_not_faster():
    assert not is_faster(record(0.8, 1.0))


def test_decision_does_not_flip_between_runs_of_a_noisy_machine():
    clear = {is_faster(record(2.0, 1.0, noise=0.15, seed=seed)) for seed in range(20)}
    equal = {is_faster(record(1.0, 1.0, noise=0.15, seed=seed)) for seed in range(20)}
    assert (clear, equal) == ({True}, {False})


def test_record_is_told_with_its_noise():
    assert told(record(2.0, 1.0, noise=0.0)) == (
        "2.00 times as fast as fp32 at 8 x 64 (95 % interval 2.00 to 2.00; rounds of two copies of fp32: 1.00 to 1.00)"
    )
