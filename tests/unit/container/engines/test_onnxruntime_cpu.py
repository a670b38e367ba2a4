"""Engines of the CPU: several threads, one session."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from container.server.engines.engine import EngineOutOfMemory, LinearCosts
from container.server.engines.onnxruntime_cpu import (
    TensorEngine,
    TokenEngine,
    is_memory_shortage,
    ran,
    running_runtime,
    session,
    warm_up_session,
    warming,
)
from container.server.engines.tokens import Tokens
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, HERE


def embedder(**more):
    return TokenEngine(HERE / "model.onnx", **({"slots": 2, "threads": 1, "max_rows": 32} | more))


def texts(*lengths):
    return [Tokens(np.arange(length, dtype=np.int32) % 20) for length in lengths]


def test_rows_are_answered_as_alone():
    engine = embedder()
    (found,) = engine.run(engine.prepare(texts(9, 2, 5)), 0)
    alone = [engine.run(engine.prepare(texts(length)), 0)[0][0] for length in (9, 2, 5)]
    assert found.dtype == np.float32 and np.allclose(found, alone, atol=1e-6)


def test_slots_share_a_session():
    engine = embedder()
    found: dict[int, np.ndarray] = {}

    def work(slot):
        for _ in range(50):
            found[slot] = engine.run(engine.prepare(texts(3 + slot)), slot)[0]

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(engine.slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for slot, answer in found.items():
        assert np.array_equal(answer, engine.run(engine.prepare(texts(3 + slot)), 0)[0])


def test_costs_come_from_the_declared_sizes():
    costs = embedder(sizes=((1, 8), (32, 128))).warm_up()
    assert 0 <= costs.fixed_seconds < 1 and costs.seconds_per_token > 0


SIZES = ((1, 8), (8, 64), (32, 128))
TIMED = {16: (1, 16), 128: (8, 16)}


def test_one_slot_warms_every_declared_size_the_largest_first():
    assert warming(SIZES, 1) == [(32, 128), (8, 64), (1, 8)]


def test_several_slots_share_the_rows_of_every_size_and_run_each_count_of_rows_in_one_piece():
    found = warming(SIZES, 3)
    assert found[:3] == [(11, 128), (11, 128), (10, 128)]
    assert sum(rows for rows, tokens in found if tokens == 128) == 32
    assert [size for size in found if size[1] == 64] == [(3, 64), (3, 64), (2, 64)]
    assert {(1, 8), (8, 8), (32, 8)} <= set(found)


def test_rows_without_tokens_are_shared_too():
    assert warming(((1, None), (5, None)), 2) == [
        (5, None),
        (3, None),
        (2, None),
        (1, None),
        (1, None),
    ]


def test_warm_up_works_on_every_slot_at_once_and_times_when_that_is_done():
    together, ran, lock = threading.Barrier(2, timeout=20), [], threading.Lock()

    def runner(size):
        def run():
            if size == (16, 128):
                together.wait()
            with lock:
                ran.append(size)

        return run

    warm_up_session(runner, SIZES, timed=TIMED, slots=2)
    count = len(warming(SIZES, 2))
    assert sorted(ran[:count]) == sorted(warming(SIZES, 2))
    assert set(ran[count:]) == {(1, 16), (8, 16)}


def test_warms_nothing_where_no_size_is_declared():
    assert warm_up_session(None, (), timed=TIMED, slots=2) == LinearCosts()


def test_refuses_a_size_that_memory_is_too_short_for():
    def runner(size):
        def run():
            if size == (16, 128):
                raise RuntimeError("Failed to allocate memory for requested buffer of size 99")

        return run

    with pytest.raises(
        EngineOutOfMemory,
        match=r"A batch of rows and tokens \(16, 128\) does not fit the memory that is left",
    ):
        warm_up_session(runner, SIZES, timed=TIMED, slots=2)


def test_refuses_a_network_that_fails_at_warm_up_in_its_own_words():
    def runner(size):
        def run():
            raise ValueError("no kernel")

        return run

    with pytest.raises(ValueError, match="no kernel"):
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
    assert scaled[1].tolist() == [[3, -3], [6, -6]] and positive[0].tolist() == [
        [True, False],
        [True, False],
    ]
    assert count.tolist() == [[2], [2]]


class Failing:
    """A session that fails."""

    def __init__(self, words):
        self.words = words

    def run(self, outputs, feed):
        raise RuntimeError(self.words)


def test_batch_that_memory_is_too_short_for_is_told_apart():
    with pytest.raises(
        EngineOutOfMemory, match="A batch does not fit the memory that is left: std::bad_alloc"
    ):
        ran(Failing("std::bad_alloc"), ["y"], {})
    with pytest.raises(RuntimeError, match="no kernel"):
        ran(Failing("no kernel"), ["y"], {})


def test_runtime_is_the_one_installed():
    assert running_runtime().name == "onnxruntime"


@pytest.mark.parametrize(
    "fault",
    [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("CUDA failure 2: out of memory")],
)
def test_lack_of_memory_is_known_by_its_words(fault):
    assert is_memory_shortage(fault)


def test_session_plans_no_memory_for_every_shape():
    assert session(HERE / "model.onnx", 1).get_session_options().enable_mem_pattern is False


def test_refuses_a_file_that_is_no_network(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(Exception, match=r"model\.onnx") as caught:
        session(tmp_path / "model.onnx", 1)
    assert not isinstance(caught.value, EngineOutOfMemory)
