"""The driver's own count, from a stand-in for its library.

Loading an engine in a process of its own.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from engine_build.errors import SourceFault
from engine_build.evaluation.footprint import MIB, device_memory_mib, main, measure_in_child
from engine_build.evaluation.runtimes import DRIVER
from engine_build.runner import Ended

CALLS = (
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuMemGetInfo_v2",
    "cuCtxPopCurrent_v2",
)


class Driver:
    """Records its calls; `fails` answers with an error."""

    def __init__(self, fails=None):
        self.called = []
        self._fails = fails

    def __getattr__(self, name):
        def call(*arguments):
            self.called.append(name)
            if name == "cuMemGetInfo_v2":
                arguments[0]._obj.value, arguments[1]._obj.value = 30 * MIB, 100 * MIB
            return 2 if name == self._fails else 0

        return call


def test_used_memory_is_what_is_not_free():
    driver = Driver()
    assert device_memory_mib(driver) == 70.0
    assert tuple(driver.called) == CALLS


@pytest.mark.parametrize("fails", CALLS)
def test_driver_that_fails_counts_nothing(fails):
    assert device_memory_mib(Driver(fails)) is None


def test_machine_without_a_driver_counts_nothing():
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        assert device_memory_mib() is None
    else:
        pytest.skip("this machine has a driver")


FEED = {"x": np.ones((2, 3), dtype=np.float32)}


class Runner:
    """Answers as the child would, or runs the child's own function."""

    def __init__(self, output):
        self._output = output

    def find(self, program):
        return None

    def run(self, command):
        self.command = command
        return Ended(code=0, output=self._output, errors="")


@pytest.fixture
def network(tmp_path):
    helper = onnx.helper
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", 3]) for name in "xy"
    ]
    graph = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["y"])], "negative", values[:1], values[1:]
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9),
        tmp_path / "model.onnx",
    )
    return tmp_path / "model.onnx"


def test_child_is_told_the_engine_and_its_feed(tmp_path):
    runner = Runner(
        'words of a library\n{"load_seconds": 1.5, "host_memory_mib": 20.0, "device_memory_mib": '
        "64.0}\n"
    )
    found = measure_in_child(Path("fp16.plan"), FEED, tmp_path, runner)
    assert (found.load_seconds, found.host_memory_mib, found.device_memory_mib) == (1.5, 20.0, 64.0)
    assert runner.command.argv[1:4] == ("-m", "engine_build.evaluation.footprint", "fp16.plan")
    with np.load(runner.command.argv[4]) as file:
        assert (file["x"] == FEED["x"]).all()


def test_child_loads_and_runs_the_engine(network, tmp_path, capsys):
    np.savez(tmp_path / "feed.npz", **FEED)
    assert main([str(network), str(tmp_path / "feed.npz")]) == 0
    assert json.loads(capsys.readouterr().out)["load_seconds"] >= 0


@pytest.mark.parametrize("output", ["", "Segmentation fault", '{"unknown": 1}'])
def test_refuses_an_engine_that_does_not_load(output, tmp_path):
    with pytest.raises(SourceFault, match=r"engine int8\.onnx does not load in a fresh process"):
        measure_in_child(Path("int8.onnx"), FEED, tmp_path, Runner(output))
