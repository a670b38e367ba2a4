"""Engines of the CPU: several threads, one session."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from types import SimpleNamespace

import numpy as np
import pytest

from container.server.engines.engine import EngineOutOfMemory, LinearCosts
from container.server.engines.onnxruntime_cpu import (
    TensorEngine,
    TokenEngine,
    open_session,
    raise_memory_shortage,
    spread_sizes,
    warm_up_session,
)
from container.server.engines.tokens import Tokens
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, HERE


def embedder(**more):
    return TokenEngine(HERE / "model.onnx", **({"slots": 2, "threads": 1, "max_rows": 32} | more))


def texts(*lengths):
    return [Tokens(np.arange(length, dtype=np.int32) % 20) for length in lengths]


def test_rows_are_answered_as_alone():
    engine = embedder()
    (together,) = engine.run(engine.prepare(texts(9, 2, 5)), 0)
    alone = [engine.run(engine.prepare(texts(length)), 0)[0][0] for length in (9, 2, 5)]
    assert together.dtype == np.float32 and np.allclose(together, alone, atol=1e-6)


def test_slots_share_a_session():
    engine = embedder()

    def work(slot):
        return [engine.run(engine.prepare(texts(3 + slot)), slot)[0] for _ in range(50)]

    with ThreadPoolExecutor(engine.slots) as threads:
        answers = list(threads.map(work, range(engine.slots)))
    for slot in range(engine.slots):
        assert np.array_equal(answers[slot][-1], work(slot)[0])


SIZES = ((1, 8), (8, 64), (32, 128))
TIMED = {16: (1, 16), 128: (8, 16)}


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
    barrier, runs = threading.Barrier(2, timeout=20), []

    def runner(size):
        def run():
            if size == (16, 128):
                barrier.wait()
            runs.append(size)

        return run

    warm_up_session(runner, SIZES, timed=TIMED, slots=2)
    count = len(spread_sizes(SIZES, 2))
    assert sorted(runs[:count]) == sorted(spread_sizes(SIZES, 2))
    assert set(runs[count:]) == {(1, 16), (8, 16)}


def clock_of_runs(*seconds):
    """A clock by which timed runs take so many seconds, one after the other."""
    readings = accumulate(part for run in seconds for part in (0.0, run))
    return lambda: next(readings)


def test_costs_are_fitted_to_the_shortest_runs_of_two_sizes():
    clock = clock_of_runs(9.0, 2.0, 3.0, 16.0, 17.0, 90.0)
    engine = embedder(sizes=((1, 8), (32, 128)), clock=clock)
    assert engine.warm_up() == LinearCosts(fixed_seconds=0.0, seconds_per_token=0.125)
    clock = clock_of_runs(3.0, 3.0, 3.0, 10.0, 10.0, 10.0)
    costs = warm_up_session(lambda size: bool, ((1, 8),), timed=TIMED, slots=1, clock=clock)
    assert costs == LinearCosts(fixed_seconds=2.0, seconds_per_token=0.0625)


@pytest.mark.parametrize("seconds", [1.0, 0.5])
def test_costs_are_guessed_where_the_larger_size_takes_no_longer(seconds):
    clock = clock_of_runs(*[1.0] * 3, *[seconds] * 3)
    costs = warm_up_session(lambda size: bool, ((1, 8),), timed=TIMED, slots=1, clock=clock)
    assert costs == LinearCosts()


def test_warms_nothing_where_no_size_is_declared():
    assert warm_up_session(None, (), timed=TIMED, slots=2) == LinearCosts()


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
    def runner(size):
        def run():
            if size == (16, 128):
                raise fault

        return run

    with pytest.raises(kind, match=sentence):
        warm_up_session(runner, SIZES, timed=TIMED, slots=2)


def test_tensors_are_answered_output_by_output():
    served = ARITHMETIC.served
    engine = TensorEngine(
        HERE / "arithmetic.onnx",
        slots=1,
        threads=1,
        max_rows=8,
        inputs=served.client_inputs,
        outputs=served.client_outputs,
    )
    rows = [(np.array([[1, -1], [2, -2]], np.float32), np.array([gain])) for gain in (2, 3)]
    scaled, positive, count = engine.run(engine.prepare(rows), 0)
    assert scaled[1].tolist() == [[3, -3], [6, -6]]
    assert positive[0].tolist() == [[True, False]] * 2
    assert count.tolist() == [[2], [2]]


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        ("std::bad_alloc", EngineOutOfMemory, "A batch does not fit the memory that is left: std"),
        ("no kernel", RuntimeError, "^no kernel$"),
    ],
)
def test_refuses_a_batch_that_fails(words, kind, sentence):
    def run(outputs, feed):
        raise RuntimeError(words)

    engine = embedder()
    engine._session = SimpleNamespace(run=run)
    with pytest.raises(kind, match=sentence):
        engine.run(engine.prepare(texts(3)), 0)


@pytest.mark.parametrize(
    "fault",
    [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("CUDA failure 2: out of memory")],
)
def test_lack_of_memory_is_known_by_its_words(fault):
    with pytest.raises(EngineOutOfMemory):
        raise_memory_shortage(fault, "it")


def test_refuses_a_file_that_is_no_network(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(Exception, match=r"model\.onnx") as fault:
        open_session(tmp_path / "model.onnx", 1)
    assert not isinstance(fault.value, EngineOutOfMemory)


def test_session_plans_no_memory_for_every_shape():
    options = open_session(HERE / "model.onnx", 1).get_session_options()
    assert options.enable_mem_pattern is False
