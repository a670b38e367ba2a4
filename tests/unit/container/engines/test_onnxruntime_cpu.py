"""Engines of the CPU: several threads, one session."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from container.server.engines.engine import EngineOutOfMemory
from container.server.engines.onnxruntime_cpu import TensorEngine, TokenEngine, is_short_of_memory, running_runtime, session
from container.server.engines.rows import Tokens
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
    costs = embedder(sizes=((1, 8), (32, 32))).warm_up()
    assert 0 <= costs.fixed_seconds < 1 and costs.seconds_per_token > 0


def test_tensors_are_answered_output_by_output():
    served = ARITHMETIC.served
    engine = TensorEngine(
        HERE / "arithmetic.onnx", slots=1, threads=1, max_rows=8, inputs=served.client_inputs, outputs=served.client_outputs
    )
    rows = [(np.array([[1, -1], [2, -2]], np.float32), np.array([gain])) for gain in (2, 3)]
    scaled, positive, count = engine.run(engine.prepare(rows), 0)
    assert scaled[1].tolist() == [[3, -3], [6, -6]] and positive[0].tolist() == [[True, False], [True, False]]
    assert count.tolist() == [[2], [2]]


def test_runtime_is_the_one_installed():
    assert running_runtime().name == "onnxruntime"


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeError("std::bad_alloc"), RuntimeError("CUDA failure 2: out of memory")])
def test_lack_of_memory_is_known_by_its_words(fault):
    assert is_short_of_memory(fault)


def test_refuses_a_file_that_is_no_network(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(Exception, match=r"model\.onnx") as caught:
        session(tmp_path / "model.onnx", 1)
    assert not isinstance(caught.value, EngineOutOfMemory)
