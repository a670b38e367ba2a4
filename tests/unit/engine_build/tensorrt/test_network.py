"""Feeds and the optimization profiles that take them.

Plans in a runtime that is stood in for: shapes, buffers, profiles; the network itself runs in
ONNX Runtime.
"""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest

from engine_build.errors import InputRefused, NetworkRefused
from engine_build.ort import OrtNetwork
from engine_build.tensorrt.network import (
    Range,
    TensorrtNetwork,
    fill_feed,
    load_plan,
    nearest_profile,
    split_feed,
)
from tests.fixtures.recorded_gpu.cuda import Error, RecordedCuda
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, install_runtime
from tests.unit.engine_build.tensorrt.stand_ins import (
    StandInContext,
    StandInEngine,
    StandInTensorRT,
)


def profile(batch, sequence, *names):
    low, opt, high = zip(batch, sequence, strict=True)
    return {
        name: Range(smallest=low, opt=opt, largest=high)
        for name in names or ("input_ids", "attention_mask")
    }


def shaped_feed(rows, tokens, *names):
    values = np.arange(rows * tokens, dtype=np.int64).reshape(rows, tokens) + 1
    return dict.fromkeys(names or ("input_ids", "attention_mask"), values)


SHORT = profile((1, 8, 32), (16, 64, 128))
LONG = profile((1, 1, 4), (128, 256, 512))


@pytest.mark.parametrize(
    ("rows", "tokens", "index"), [(1, 16, 0), (32, 128, 0), (1, 512, 1), (1, 128, 1), (4, 128, 0)]
)
def test_profile_is_the_one_tuned_nearest(rows, tokens, index):
    assert nearest_profile(shaped_feed(rows, tokens), [SHORT, LONG]) == index


def test_feed_that_fits_is_left_alone():
    given = shaped_feed(3, 20)
    assert fill_feed(given, [SHORT]) is given


def test_short_rows_are_filled_with_zeros_that_the_mask_hides():
    found = fill_feed(shaped_feed(2, 5), [SHORT, LONG])
    assert {name: values.shape for name, values in found.items()} == {
        "input_ids": (2, 16),
        "attention_mask": (2, 16),
    }
    assert (found["attention_mask"][:, 5:] == 0).all() and found["input_ids"][1, :5].tolist() == [
        6,
        7,
        8,
        9,
        10,
    ]


def test_few_rows_are_filled_with_the_last_one():
    found = fill_feed(shaped_feed(2, 16), [profile((4, 8, 32), (16, 64, 128))])
    assert found["input_ids"].shape == (4, 16)
    assert (found["input_ids"][2:] == found["input_ids"][1]).all()


def test_large_batch_is_cut_to_what_its_own_profile_takes():
    assert [rows for _, rows in split_feed(shaped_feed(70, 64), [SHORT, LONG])] == [32, 32, 6]
    assert [rows for _, rows in split_feed(shaped_feed(9, 300), [SHORT, LONG])] == [4, 4, 1]


def test_parts_hold_every_row_once():
    found = np.concatenate(
        [part["input_ids"][:rows] for part, rows in split_feed(shaped_feed(70, 64), [SHORT])]
    )
    assert (found == shaped_feed(70, 64)["input_ids"]).all()


def test_refuses_rows_that_no_profile_takes():
    with pytest.raises(
        InputRefused,
        match=r"takes input_ids 2x600, .*allowed: input_ids 1x16 to 32x128, .*; input_ids 1x128 to",
    ):
        list(split_feed(shaped_feed(2, 600), [SHORT, LONG]))


def test_refuses_to_fill_up_what_no_mask_hides():
    with pytest.raises(InputRefused, match="takes signal 2x5"):
        fill_feed(shaped_feed(2, 5, "signal"), [profile((1, 8, 32), (16, 64, 128), "signal")])


INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def shapes(*sizes):
    return "|".join(",".join(f"{name}:{size}" for name in INPUTS) for size in sizes)


def plan(tmp_path, **changes):
    body = {
        "network": str(TINY),
        "inputs": INPUTS,
        "outputs": ["sentence_embedding"],
        "shapes": {
            "min": shapes("1x4", "1x16"),
            "opt": shapes("2x8", "1x24"),
            "max": shapes("4x16", "2x32"),
        },
        **changes,
    }
    path = tmp_path / "model.plan"
    path.write_bytes(
        b"ftrt"
        + struct.pack("<I", 0)
        + bytes(16)
        + bytes((10, 16, 1, 11))
        + json.dumps(body).encode()
    )
    return path


def feed(rows, tokens):
    ids = np.random.default_rng(rows * tokens).integers(1, 20, (rows, tokens))
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }


@pytest.fixture
def cuda():
    return RecordedCuda()


@pytest.fixture
def trt(cuda):
    return StandInTensorRT(cuda)


def test_plan_answers_as_its_network_does(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    assert network.inputs == INPUTS and network.outputs == ("sentence_embedding",)
    for rows, tokens in ((2, 8), (1, 4), (4, 16), (2, 32), (1, 8)):
        assert np.allclose(
            network.rows(feed(rows, tokens)), OrtNetwork(TINY).rows(feed(rows, tokens)), atol=1e-6
        )


def test_profile_follows_the_shape(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    for tokens in (8, 24, 9):
        network.rows(feed(1, tokens))
    assert [profile for profile, _ in trt.engines[0].runs] == [0, 1, 0]


def test_batch_beyond_the_plan_is_run_in_parts(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    found = network.rows(feed(11, 8))
    assert np.allclose(found, OrtNetwork(TINY).rows(feed(11, 8)), atol=1e-6)
    assert [shape["input_ids"] for _, shape in trt.engines[0].runs] == [(4, 8), (4, 8), (3, 8)]


def test_rows_shorter_than_any_profile_are_masked(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    assert np.allclose(network.rows(feed(2, 3)), OrtNetwork(TINY).rows(feed(2, 3)), atol=1e-6)


def test_values_are_sent_in_the_plans_own_type(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    small = {name: values.astype(np.int32)[:, ::-1] for name, values in feed(2, 8).items()}
    turned = {name: values[:, ::-1] for name, values in feed(2, 8).items()}
    assert np.allclose(network.rows(small), OrtNetwork(TINY).rows(turned), atol=1e-6)


def test_memory_is_measured_and_given_back(trt, cuda, tmp_path):
    with TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda) as network:
        assert (network.device_memory_mib, network.execution_memory_mib) == (8.0, 3.0)
        assert network.load_seconds > 0
        network.rows(feed(1, 4))
        network.rows(feed(4, 16))
        assert len(cuda.blocks) == len(INPUTS) + 1
    assert (cuda.blocks, cuda.streams) == ({}, 0)


def test_same_shapes_run_as_a_graph_with_new_values(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    feeds = [
        {**feed(2, 8), "input_ids": feed(2, 8)["input_ids"] % (index + 2) + 1} for index in range(4)
    ]
    for each in feeds:
        assert np.allclose(network.rows(each), OrtNetwork(TINY).rows(each), atol=1e-6)
    assert (cuda.launches, len(cuda.graphs)) == (3, 1)


def test_other_shapes_end_a_graph(trt, cuda, tmp_path):
    with TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda) as network:
        for tokens in (8, 8, 9, 8):
            assert np.allclose(
                network.rows(feed(2, tokens)), OrtNetwork(TINY).rows(feed(2, tokens)), atol=1e-6
            )
        assert (cuda.launches, cuda.graphs) == (1, {})
        network.rows(feed(2, 8))
    assert (cuda.launches, cuda.graphs) == (2, {})


def test_plan_that_cannot_be_recorded_runs_kernel_by_kernel(trt, cuda, tmp_path):
    cuda.capture_error = Error.cudaErrorStreamCaptureUnsupported
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    for _ in range(3):
        assert np.allclose(network.rows(feed(2, 8)), OrtNetwork(TINY).rows(feed(2, 8)), atol=1e-6)
    assert cuda.launches == 0


def test_host_code_is_allowed_only_when_asked(trt, cuda, tmp_path):
    selected = []
    original = trt.Runtime
    trt.Runtime = lambda logger: selected.append(original(logger)) or selected[-1]
    for asked in (False, True):
        TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda, host_code=asked)
    assert [runtime.engine_host_code_allowed for runtime in selected] == [False, True]


def test_opened_takes_the_modules_of_this_machine(tmp_path, monkeypatch):
    install_runtime(monkeypatch)
    assert load_plan(plan(tmp_path)).rows(feed(1, 4)).shape == (1, 16)


def test_refuses_a_machine_without_bindings(tmp_path):
    with pytest.raises(
        InputRefused, match=r"cannot be judged on this machine, whose Python has no tensorrt"
    ):
        load_plan(plan(tmp_path))


def test_refuses_a_plan_of_another_tensorrt_in_its_own_words(trt, cuda, tmp_path):
    (tmp_path / "model.plan").write_bytes(b"other")
    with pytest.raises(
        NetworkRefused, match=r"model.plan does not load \(The engine plan file is not compatible"
    ):
        TensorrtNetwork(tmp_path / "model.plan", trt=trt, cuda=cuda)


def test_refuses_sizes_beyond_every_profile(trt, cuda, tmp_path):
    network = TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)
    with pytest.raises(
        InputRefused, match="no optimization profile of the plan takes input_ids 1x40"
    ):
        network.rows(feed(1, 40))


def test_refuses_types_that_numpy_lacks(trt, cuda, tmp_path):
    with pytest.raises(
        NetworkRefused, match="sentence_embedding of the plan has a type that numpy lacks"
    ):
        TensorrtNetwork(plan(tmp_path, output_type="bf16"), trt=trt, cuda=cuda)


def test_refuses_outputs_whose_shape_is_not_known_beforehand(trt, cuda, tmp_path, monkeypatch):
    monkeypatch.setattr(StandInContext, "get_tensor_shape", lambda self, name: [2, -1])
    with pytest.raises(
        NetworkRefused, match="the shape of output sentence_embedding follows from values"
    ):
        TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda).rows(feed(2, 8))


@pytest.mark.parametrize(
    ("method", "answer", "reason"),
    [
        ("set_input_shape", False, "it takes no such input_ids"),
        ("infer_shapes", ["token_type_ids"], "it misses token_type_ids"),
        ("execute_async_v3", False, "it cannot be queued"),
    ],
)
def test_refuses_what_the_context_refuses(trt, cuda, tmp_path, monkeypatch, method, answer, reason):
    monkeypatch.setattr(StandInContext, method, lambda *_: answer)
    with pytest.raises(NetworkRefused, match=f"the plan does not run: {reason}"):
        TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda).rows(feed(2, 8))


def test_refuses_a_plan_that_gets_no_context(trt, cuda, tmp_path, monkeypatch):
    monkeypatch.setattr(StandInEngine, "create_execution_context", lambda self: None)
    with pytest.raises(NetworkRefused, match="gets no execution context"):
        TensorrtNetwork(plan(tmp_path), trt=trt, cuda=cuda)


def test_refuses_more_memory_than_the_gpu_has(tmp_path):
    small = RecordedCuda(total=16)
    with pytest.raises(NetworkRefused, match=r"CUDA fails with out of memory \(2\)"):
        TensorrtNetwork(plan(tmp_path), trt=StandInTensorRT(small), cuda=small).rows(feed(4, 16))
