"""The engine that GPU runtimes share: what runs when, and what it is taken to cost."""

from __future__ import annotations

import numpy as np
import pytest

from container.server.engines.buckets import ladder
from container.server.engines.engine import LinearCosts
from container.server.engines.shaping import BucketEngine, Tensor, TokenShaping
from container.server.engines.tokens import Tokens
from onboarding.manifest import ProfileRecord

INPUTS = {
    name: Tensor(dtype=np.int64, rank=2)
    for name in ("input_ids", "attention_mask", "token_type_ids")
}


class Recorder:
    """Sums each row's ids; a run takes a second a row, and every other run a second more."""

    slots = 2

    def __init__(self):
        self.now = 0.0
        self.runs: list[tuple[int, tuple[int, ...]]] = []

    def clock(self):
        return self.now

    def run(self, part, slot):
        self.runs.append((slot, part.shapes["input_ids"]))
        self.now += part.shapes["input_ids"][0] + len(self.runs) % 2
        return {"sum": part.feed["input_ids"].sum(axis=1).astype(np.float16)[: part.rows]}


@pytest.fixture
def runner():
    return Recorder()


def engine(runner, *, profiles=(((1, 2, 4), (4, 8, 8)),), **more):
    records = [ProfileRecord(batch=batch, sequence=sequence) for batch, sequence in profiles]
    shaping = TokenShaping(ladder(records, max_rows=4), inputs=INPUTS, outputs=["sum"])
    return BucketEngine(runner, shaping, clock=runner.clock, **more)


def rows(*lengths):
    return [Tokens(np.full(length, 2, np.int32)) for length in lengths]


def test_warm_up_runs_every_bucket_twice_in_every_slot_the_largest_first(runner):
    engine(runner).warm_up()
    sizes = ((4, 8), (2, 8), (4, 4), (1, 8), (2, 4), (1, 4))
    expected = [(slot, shape) for slot in (0, 1) for shape in sizes for _ in range(2)]
    runs, timed = runner.runs[: len(expected)], runner.runs[len(expected) :]
    assert sorted(runs) == sorted(expected) and runs[0] == (0, (4, 8))
    assert {slot for slot, _ in timed} == {0}


def test_costs_are_the_best_of_several_runs(runner):
    costs = engine(runner).warm_up()
    assert [costs.seconds(count, 5) for count in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 4.0]


def test_engine_without_warm_up_runs_nothing_and_guesses(runner):
    cold = engine(runner, warm=False)
    assert cold.warm_up() == LinearCosts() and cold.inline_rows == 0
    assert runner.runs == []
