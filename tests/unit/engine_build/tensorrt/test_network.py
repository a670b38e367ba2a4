"""Feeds and the optimization profiles that take them, and plans in a stand-in for the runtime.

The network of a plan itself runs in ONNX Runtime.
"""

from __future__ import annotations

import json
import struct
from contextlib import closing

import numpy as np
import pytest

from engine_build.errors import InputRefused, NetworkRefused
from engine_build.evaluation.footprint import main
from engine_build.ort import OrtNetwork
from engine_build.tensorrt.network import Range, TensorrtNetwork, fill_feed, load_plan, split_feed
from tests.fixtures.recorded_gpu.cuda import RecordedCuda
from tests.unit.engine_build.tensorrt.gpu_machine import (
    TINY,
    StandInTensorRT,
    feed,
    install_runtime,
)

NAMES = ("input_ids", "attention_mask")


def profile(batch, sequence, names=NAMES):
    low, opt, high = zip(batch, sequence, strict=True)
    return {name: Range(smallest=low, opt=opt, largest=high) for name in names}


def shaped_feed(rows, tokens, names=NAMES):
    values = np.arange(rows * tokens, dtype=np.int64).reshape(rows, tokens) + 1
    return dict.fromkeys(names, values)


SHORT = profile((1, 8, 32), (16, 64, 128))
LONG = profile((1, 1, 4), (128, 256, 512))


def test_feed_is_filled_up_to_what_a_profile_takes():
    fitting = shaped_feed(3, 20)
    assert fill_feed(fitting, [SHORT]) is fitting
    filled = fill_feed(shaped_feed(2, 5), [SHORT, LONG])
    assert {values.shape for values in filled.values()} == {(2, 16)}
    assert (filled["attention_mask"][:, 5:] == 0).all()
    assert filled["input_ids"][1, :5].tolist() == [6, 7, 8, 9, 10]
    filled = fill_feed(shaped_feed(2, 16), [profile((4, 8, 32), (16, 64, 128))])
    assert filled["input_ids"].shape == (4, 16)
    assert (filled["input_ids"][2:] == filled["input_ids"][1]).all()


@pytest.mark.parametrize(
    ("given", "profiles", "reason"),
    [
        (
            shaped_feed(2, 600),
            [SHORT, LONG],
            r"takes input_ids 2x600, .*allowed: input_ids 1x16 to 32x128, .*; input_ids 1x128 to",
        ),
        # No mask would hide what is filled up.
        (shaped_feed(2, 5, ["x"]), [profile((1, 8, 32), (16, 64, 128), ["x"])], "takes x 2x5"),
    ],
)
def test_refuses_rows_that_no_profile_takes(given, profiles, reason):
    with pytest.raises(InputRefused, match=reason):
        list(split_feed(given, profiles))


INPUTS = ("input_ids", "attention_mask", "token_type_ids")
SIZES = {"min": ("1x4", "1x16"), "opt": ("2x8", "1x24"), "max": ("4x16", "2x32")}


@pytest.fixture
def plan(tmp_path):
    def write(**changes):
        shapes = {
            kind: "|".join(",".join(f"{name}:{size}" for name in INPUTS) for size in sizes)
            for kind, sizes in SIZES.items()
        }
        tensors = {"inputs": INPUTS, "outputs": ["sentence_embedding"]}
        body = {"network": str(TINY), **tensors, "shapes": shapes, **changes}
        header = b"ftrt" + struct.pack("<I", 0) + bytes(16) + bytes((10, 16, 1, 11))
        path = tmp_path / "model.plan"
        path.write_bytes(header + json.dumps(body).encode())
        return path

    return write


@pytest.fixture
def cuda():
    return RecordedCuda()


@pytest.fixture
def trt(cuda):
    return StandInTensorRT(cuda)


@pytest.fixture
def network(plan, trt, cuda):
    return TensorrtNetwork(plan(), trt=trt, cuda=cuda)


def assert_answers_as_before(network, feed):
    assert np.allclose(network.rows(feed), OrtNetwork(TINY).rows(feed), atol=1e-6)


def test_plan_answers_as_its_network_does(network):
    assert network.inputs == INPUTS and network.outputs == ("sentence_embedding",)
    for rows, tokens in ((2, 8), (1, 4), (4, 16), (2, 32), (1, 8), (2, 3)):
        assert_answers_as_before(network, feed(rows, tokens))


def test_feeds_are_run_in_parts_by_the_profile_of_their_shape_in_the_plans_type(network, trt):
    for tokens in (8, 24, 9):
        network.rows(feed(1, tokens))
    assert_answers_as_before(network, feed(11, 8))
    runs = [(profile, shape["input_ids"]) for profile, shape in trt.engines[0].runs]
    assert runs[:3] == [(0, (1, 8)), (1, (1, 24)), (0, (1, 9))]
    assert runs[3:] == [(0, (4, 8)), (0, (4, 8)), (0, (3, 8))]
    small = {name: values.astype(np.int32)[:, ::-1] for name, values in feed(2, 8).items()}
    turned = {name: values[:, ::-1] for name, values in feed(2, 8).items()}
    assert np.allclose(network.rows(small), OrtNetwork(TINY).rows(turned), atol=1e-6)


def test_load_plan_takes_the_modules_of_this_machine_and_refuses_where_there_are_none(
    plan, monkeypatch
):
    reason = "cannot be judged on this machine, whose Python has no tensorrt"
    with pytest.raises(InputRefused, match=reason):
        load_plan(plan())
    install_runtime(monkeypatch)
    assert load_plan(plan()).rows(feed(1, 4)).shape == (1, 16)


def test_shapes_that_are_run_again_become_a_graph_and_other_shapes_end_it(network, cuda):
    with closing(network):
        for index in range(4):
            ids = feed(2, 8)["input_ids"] % (index + 2) + 1
            assert_answers_as_before(network, {**feed(2, 8), "input_ids": ids})
        assert (cuda.launches, len(cuda.graphs)) == (2, 1)
        for tokens in (9, 8):
            assert_answers_as_before(network, feed(2, tokens))
        assert (cuda.launches, cuda.graphs) == (2, {})
    assert (cuda.blocks, cuda.host, cuda.streams) == ({}, {}, 0)


def test_warm_up_runs_every_size_and_leaves_a_graph(network, trt, cuda):
    network.warm_up()
    shapes = [shape["input_ids"] for _, shape in trt.engines[0].runs]
    expected = [(1, 4), (4, 16), (2, 8), (1, 16), (2, 32), (1, 24)]
    assert list(dict.fromkeys(shapes)) == expected and len(cuda.graphs) == 1


def test_footprint_of_a_plan_is_that_of_a_second_load(plan, monkeypatch, tmp_path, capsys):
    install_runtime(monkeypatch)
    np.savez(tmp_path / "feed.npz", **feed(2, 8))
    assert main([str(plan()), str(tmp_path / "feed.npz")]) == 0
    loads = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(loads) == 2 and min(load["load_seconds"] for load in loads) > 0
    assert loads[0]["host_memory_mib"] == loads[1]["host_memory_mib"]


def test_refuses_types_that_numpy_lacks(plan, trt, cuda):
    reason = "sentence_embedding of the plan has a type that numpy lacks"
    with pytest.raises(NetworkRefused, match=reason):
        TensorrtNetwork(plan(output_type="bf16"), trt=trt, cuda=cuda)
