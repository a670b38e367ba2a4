"""The engine of ONNX Runtime on GPUs, its arrays on the CPU.

Binding, buckets and answers really run; graphs need a GPU.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest

from container.archive import EngineArchive
from container.server.engines import onnxruntime_cuda
from container.server.engines.engine import EngineOutOfMemory
from container.server.engines.loading import cpu_engine, cuda_engine
from container.server.engines.onnxruntime_cuda import (
    GraphRunner,
    OnnxRunner,
    check_rows,
    run_options,
)
from container.server.engines.shaping import Part
from container.server.engines.tokens import Tokens
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, HERE, write_archive


def both(root, tiny=EMBEDDER):
    archive = EngineArchive(root=root, manifest=write_archive(root, tiny))
    return cpu_engine(archive, slots=1, threads=1), cuda_engine(archive, device="cpu")


def texts(*lengths, seed=0, typed=False):
    chance = np.random.default_rng(seed)
    rows = [chance.integers(0, 20, length).astype(np.int32) for length in lengths]
    return [Tokens(ids, ids % 2 if typed else None) for ids in rows]


def answered(engine, rows):
    return engine.run(engine.prepare(rows), 0)


def test_texts_are_answered_as_on_the_cpu(tmp_path):
    plain, bound = both(tmp_path)
    bound.warm_up()
    for seed, lengths in enumerate(((1,), (8, 8, 8), (3, 17, 30), (32,) * 32, (9,) * 25)):
        rows = texts(*lengths, seed=seed, typed=seed % 2 == 1)
        (found,), (wanted,) = answered(bound, rows), answered(plain, rows)
        assert found.dtype == np.float32 and np.allclose(found, wanted, atol=1e-6)


def test_tensors_of_any_length_are_answered_as_on_the_cpu(tmp_path):
    plain, bound = both(tmp_path, ARITHMETIC)
    bound.warm_up()
    for length in (1, 5, 2, 1):
        chance = np.random.default_rng(length)
        rows = [
            (chance.standard_normal((2, length)).astype(np.float32), np.array([gain]))
            for gain in (3, -1, 2)
        ]
        for found, wanted in zip(answered(bound, rows), answered(plain, rows), strict=True):
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted)


def test_answers_stay_when_the_same_bucket_runs_again(tmp_path):
    plain, bound = both(tmp_path)
    (first,) = answered(bound, texts(8, seed=1))
    answered(bound, texts(8, seed=2))
    assert np.allclose(first, answered(plain, texts(8, seed=1))[0], atol=1e-6)


def test_inputs_and_outputs_of_a_bucket_keep_their_place(tmp_path):
    runner = OnnxRunner(HERE / "model.onnx", device="cpu")
    lane = lane_of(runner, part(4))
    places = lane._inputs["input_ids"].data_ptr(), lane._outputs["sentence_embedding"].data_ptr()
    found = [lane.run(part(4, seed=seed))["sentence_embedding"] for seed in (1, 2, 1)]
    assert (
        lane._inputs["input_ids"].data_ptr(),
        lane._outputs["sentence_embedding"].data_ptr(),
    ) == places
    assert np.array_equal(found[0], found[2]) and not np.array_equal(found[0], found[1])


def test_zeros_are_sent_once_and_again_after_other_values():
    runner = OnnxRunner(HERE / "model.onnx", device="cpu")
    lane, types = lane_of(runner, part(4)), np.ones((2, 4), np.int64)
    assert lane._inputs["token_type_ids"].numpy().tolist() == np.zeros((2, 4)).tolist()
    lane.run(part(4, token_type_ids=types))
    assert lane._inputs["token_type_ids"].numpy().tolist() == types.tolist()
    lane.run(part(4))
    assert lane._inputs["token_type_ids"].numpy().tolist() == np.zeros((2, 4)).tolist()


def test_run_of_a_graph_names_it():
    assert run_options(3).get_run_config_entry("gpu_graph_id") == "3"
    assert run_options(-1).get_run_config_entry("gpu_graph_id") == "-1"
    assert run_options(None) is None


def test_each_bucket_is_a_graph_of_its_own(tmp_path):
    runner = OnnxRunner(HERE / "model.onnx", device="cpu")
    runner._records = True
    parts = [part(4), part(8)]
    runner.declare([each.shapes for each in parts], outputs=runner.outputs)
    for each in (*parts, *parts):
        runner.run(each, 0)
    graphs = [
        lane._options.get_run_config_entry("gpu_graph_id")
        for lane in runner._graph_runners.values()
    ]
    assert graphs == ["1", "2"]


def test_closed_engine_forgets_its_session(tmp_path):
    _, bound = both(tmp_path)
    bound.warm_up()
    bound.close()
    with pytest.raises(AttributeError):
        answered(bound, texts(3))


def test_network_that_cannot_be_recorded_runs_without_graphs_and_is_told(tmp_path):
    wanted = []

    def session(path, options, providers):
        wanted.append(providers[0][1])
        if "enable_cuda_graph" in providers[0][1]:
            raise RuntimeError(
                "This session cannot use the graph capture feature: nodes have not been "
                "partitioned to CUDA"
            )
        return gpu_session(path)

    listed = []
    runner = OnnxRunner(HERE / "model.onnx", warn=listed.append, open_session=session)
    assert (
        not runner._records
        and len(listed) == 1
        and "cannot be recorded as CUDA graphs" in listed[0]
    )
    assert wanted == [{"device_id": "0", "enable_cuda_graph": "1"}, {"device_id": "0"}]


def test_network_that_can_be_recorded_is():
    listed = []
    runner = OnnxRunner(
        HERE / "model.onnx",
        warn=listed.append,
        open_session=lambda path, options, providers: gpu_session(path),
    )
    assert runner._records and listed == []


def test_refuses_a_runtime_without_the_cuda_provider():
    # The real one: this environment's ONNX Runtime falls back to the CPU, which nobody asked for.
    with (
        pytest.raises(ValueError, match="ONNX Runtime has no CUDAExecutionProvider here"),
        pytest.warns(UserWarning),
    ):
        OnnxRunner(HERE / "model.onnx")


@pytest.mark.parametrize(
    "words",
    ["CUDA failure 2: out of memory", "Failed to allocate memory for requested buffer of size 9"],
)
def test_refuses_a_network_that_the_gpu_has_no_memory_for(words):
    def session(path, options, providers):
        raise RuntimeError(words)

    with pytest.raises(
        EngineOutOfMemory, match=r"model\.onnx does not fit the GPU memory that is left: .*memory"
    ):
        OnnxRunner(HERE / "model.onnx", open_session=session)


def test_refuses_other_faults_as_they_are():
    def session(path, options, providers):
        raise RuntimeError("Protobuf parsing failed")

    with pytest.raises(RuntimeError, match="Protobuf parsing failed"):
        OnnxRunner(HERE / "model.onnx", open_session=session)


def test_refuses_outputs_without_the_batch_first():
    with pytest.raises(ValueError, match=r"output y has shape \[3, 2\] for 2 rows"):
        check_rows({"x": (2, 9), "y": (3, 2)}, part(4))


def test_refuses_types_that_numpy_lacks():
    strange = SimpleNamespace(name="x", type="tensor(bfloat16)")
    with pytest.raises(ValueError, match=r"tensor x of the network is a tensor\(bfloat16\)"):
        onnxruntime_cuda._type(strange)


def part(length, *, seed=0, **feed):
    ids = np.random.default_rng(seed).integers(0, 20, (2, length))
    whole = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": None} | feed
    return Part(rows=2, shapes=dict.fromkeys(whole, (2, length)), feed=whole)


def lane_of(runner, first):
    types = {name: tensor.dtype for name, tensor in runner.inputs.items()}
    outputs = {"sentence_embedding": np.float32}
    return GraphRunner(
        runner._session, first, inputs=types, outputs=outputs, device="cpu", graph=None
    )


def gpu_session(path):
    real = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return SimpleNamespace(
        get_providers=lambda: ["CUDAExecutionProvider"],
        get_inputs=real.get_inputs,
        get_outputs=real.get_outputs,
    )
