"""Engines of the CPU: several threads, one session."""

from __future__ import annotations

import threading
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest

from container.server.engines.engine import EngineOutOfMemory, LinearCosts
from container.server.engines.onnxruntime_cpu import CpuEngine, SessionRunner, spread_sizes
from container.server.engines.shaping import Part, Tensor, TokenShaping

INPUTS = {"input_ids": Tensor(dtype=np.int64, rank=2)}
SIZES = ((1, 8), (8, 64), (32, 128))
INT8_SUMS = Path(__file__).resolve().parents[3] / "fixtures" / "int8_sums.onnx"
"""64 products of 127 and 127 in one sum."""


class Runner:
    """Keeps the sizes that it runs; `act` is called with each before."""

    outputs = ("y",)

    def __init__(self, slots, act):
        self.slots, self.act, self.runs = slots, act, []

    def run_once(self, part):
        size = part.feed["input_ids"].shape
        self.act(size)
        self.runs.append(size)


def engine(*, slots=2, sizes=SIZES, act=lambda size: None, **more):
    runner = Runner(slots, act)
    shaping = TokenShaping(None, inputs=INPUTS, outputs=runner.outputs)
    return CpuEngine(runner, shaping, max_rows=32, sizes=sizes, **more), runner.runs


def test_one_slot_warms_every_declared_size_the_largest_first():
    assert spread_sizes(SIZES, 1) == [(32, 128), (8, 64), (1, 8)]


def test_several_slots_share_the_rows_of_every_size_and_run_each_count_of_rows_in_one_piece():
    sizes = spread_sizes(SIZES, 3)
    assert sizes[:3] == [(11, 128), (11, 128), (10, 128)]
    assert sum(rows for rows, tokens in sizes if tokens == 128) == 32
    assert [size for size in sizes if size[1] == 64] == [(3, 64), (3, 64), (2, 64)]
    assert {(1, 8), (8, 8), (32, 8)} <= set(sizes)
    assert [rows for rows, _ in spread_sizes(((1, None), (5, None)), 2)] == [5, 3, 2, 1, 1]


def test_warm_up_works_on_every_slot_at_once_and_times_when_that_is_done():
    barrier = threading.Barrier(2, timeout=20)
    both, runs = engine(act=lambda size: size == (16, 128) and barrier.wait())
    both.warm_up()
    count = len(spread_sizes(SIZES, 2))
    assert sorted(runs[:count]) == sorted(spread_sizes(SIZES, 2))
    assert set(runs[count:]) == {(1, 16), (8, 16)}


def clock_of_runs(*seconds):
    """A clock by which timed runs take so many seconds, one after the other."""
    readings = accumulate(part for run in seconds for part in (0.0, run))
    return lambda: next(readings)


@pytest.mark.parametrize(
    ("seconds", "fixed", "per_token"),
    [
        ((9.0, 2.0, 3.0, 16.0, 17.0, 90.0), 0.0, 0.125),
        ((3.0, 3.0, 3.0, 10.0, 10.0, 10.0), 2.0, 0.0625),
    ],
)
def test_costs_are_fitted_to_the_shortest_runs_of_two_sizes(seconds, fixed, per_token):
    costs = engine(clock=clock_of_runs(*seconds))[0].warm_up()
    assert costs == LinearCosts(fixed_seconds=fixed, seconds_per_token=per_token)


@pytest.mark.parametrize(
    ("fault", "kind", "sentence"),
    [
        (
            RuntimeError("Failed to allocate memory for requested buffer of size 99"),
            EngineOutOfMemory,
            r"A batch of rows and tokens \(16, 128\) does not fit the memory that is left",
        ),
        (ValueError("no kernel"), ValueError, "^no kernel$"),
    ],
)
def test_refuses_a_size_that_fails_at_warm_up(fault, kind, sentence):
    def act(size):
        if size == (16, 128):
            raise fault

    with pytest.raises(kind, match=sentence):
        engine(act=act)[0].warm_up()


def test_largest_sums_of_int8_are_exact():
    """Below VNNI, ONNX Runtime adds pairs of products in 16 bits, which saturate."""
    runner = SessionRunner(INT8_SUMS, slots=1, threads=1, outputs=None)
    feed = {"x": np.full((2, 64), 127, np.float32)}
    found = runner.run(Part(rows=2, shapes={}, feed=feed), 0)["y"]
    assert np.allclose(found, 127 * 127 * 64, rtol=0.01)
