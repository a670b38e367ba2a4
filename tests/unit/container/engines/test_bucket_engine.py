"""The engine that GPU runtimes share: what runs when, and what it is taken to cost."""

from __future__ import annotations

import numpy as np
import pytest

from container.server.engines.bucket_engine import BucketEngine
from container.server.engines.buckets import ladder
from container.server.engines.engine import LinearCosts
from container.server.engines.shaping import Tensor, TokenShaping
from container.server.engines.tokens import Tokens
from onboarding.manifest import ProfileRecord

INPUTS = {
    name: Tensor(dtype=np.int64, rank=2)
    for name in ("input_ids", "attention_mask", "token_type_ids")
}


class Clock:
    """Time that passes only where a run says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


class Recorder:
    """Sums each row's ids; a run takes a second a row.

    Another second when somebody disturbs it.
    """

    slots = 2

    def __init__(self, clock):
        self.clock = clock
        self.runs: list[tuple[int, tuple[int, ...]]] = []
        self.is_closed = False

    def run(self, part, slot):
        self.runs.append((slot, part.shapes["input_ids"]))
        self.clock.now += part.shapes["input_ids"][0] + len(self.runs) % 2
        return {"sum": part.feed["input_ids"].sum(axis=1).astype(np.float16)[: part.rows]}

    def close(self):
        self.is_closed = True


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def runner(clock):
    return Recorder(clock)


def engine(runner, *, profiles=(((1, 2, 4), (4, 8, 8)),), **more):
    records = [ProfileRecord(batch=batch, sequence=sequence) for batch, sequence in profiles]
    shaping = TokenShaping(ladder(records, max_rows=4), inputs=INPUTS, outputs=["sum"])
    return BucketEngine(runner, shaping, clock=runner.clock, **more)


def rows(*lengths):
    return [Tokens(np.full(length, 2, np.int32)) for length in lengths]


def test_answers_are_the_rows_own_in_order(runner):
    made = engine(runner)
    (found,) = made.run(made.prepare(rows(3, 1, 7)), 1)
    assert found.dtype == np.float32 and found.tolist() == [6, 2, 14]
    assert runner.runs == [(1, (4, 8))]


def test_parts_are_joined(runner):
    made = engine(runner, profiles=(((1, 2, 4), (4, 4, 4)), ((1, 1, 1), (8, 8, 8))))
    (found,) = made.run(made.prepare(rows(3, 8, 2)), 0)
    assert found.tolist() == [6, 16, 4] and len(runner.runs) == 3


def test_warm_up_runs_every_bucket_twice_in_every_slot_the_largest_first(runner):
    engine(runner).warm_up()
    warm_up_session = [
        (slot, shape)
        for slot in (0, 1)
        for shape in ((4, 8), (2, 8), (4, 4), (1, 8), (2, 4), (1, 4))
        for _ in range(2)
    ]
    assert sorted(runner.runs[: len(warm_up_session)]) == sorted(warm_up_session) and runner.runs[
        0
    ] == (0, (4, 8))
    assert {slot for slot, _ in runner.runs[len(warm_up_session) :]} == {0}


def test_costs_are_the_best_of_several_runs(runner):
    costs = engine(runner).warm_up()
    assert [costs.seconds(count, 5) for count in (1, 2, 3, 4)] == [1.0, 2.0, 4.0, 4.0]


def test_engine_that_is_not_to_be_warmed_runs_nothing_and_guesses(runner):
    assert engine(runner, warm=False).warm_up() == LinearCosts()
    assert runner.runs == []


def test_closing_closes_the_runner(runner):
    engine(runner).close()
    assert runner.is_closed


def test_refuses_rows_beyond_every_bucket(runner):
    with pytest.raises(ValueError, match="takes 9 tokens"):
        engine(runner).prepare(rows(9))


def test_event_loop_s_thread_warms_the_buckets_of_fewest_rows(runner):
    made = engine(runner)
    made.warm_up()
    before = len(runner.runs)
    made.warm_up_inline()
    assert made.inline_rows == 1
    assert runner.runs[before:] == [
        (0, (1, tokens)) for tokens in made.sequence_buckets for _ in range(2)
    ]


def test_cold_engine_runs_nothing_on_the_event_loop(runner):
    assert engine(runner, warm=False).inline_rows == 0
