"""The driver's own count, from a stand-in for its library, and engines loaded in a child."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path

import numpy as np
import pytest

from engine_build.errors import SourceFault
from engine_build.evaluation.footprint import (
    MIB,
    Footprint,
    device_memory_mib,
    main,
    measure_in_child,
)
from engine_build.evaluation.runtimes import DRIVER
from engine_build.runner import Ended
from tests.unit.engine_build.graphs import node, tensor, write_graph

CALLS = (
    *("cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent_v2"),
    *("cuMemGetInfo_v2", "cuCtxPopCurrent_v2"),
)


class Driver:
    """Records its calls; `fails` answers with an error."""

    def __init__(self, fails=None):
        self.calls = []
        self._fails = fails

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append(name)
            if name == "cuMemGetInfo_v2":
                arguments[0]._obj.value, arguments[1]._obj.value = 30 * MIB, 100 * MIB
            return 2 if name == self._fails else 0

        return call


def test_used_memory_is_what_is_not_free():
    driver = Driver()
    assert device_memory_mib(driver) == 70.0
    assert tuple(driver.calls) == CALLS


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
    """Answers as the child would."""

    def __init__(self, output):
        self._output = output

    def find(self, program):
        return None

    def run(self, command):
        self.command = command
        return Ended(code=0, output=self._output, errors="")


def test_child_gets_the_engine_and_its_feed(tmp_path):
    values = {"load_seconds": 1.5, "host_memory_mib": 20.0, "device_memory_mib": 64.0}
    runner = Runner(f"words of a library\n{json.dumps(values)}\n")
    assert measure_in_child(Path("fp16.plan"), FEED, tmp_path, runner) == Footprint(**values)
    assert runner.command.argv[1:4] == ("-m", "engine_build.evaluation.footprint", "fp16.plan")
    with np.load(runner.command.argv[4]) as file:
        assert (file["x"] == FEED["x"]).all()


def test_child_loads_and_runs_the_engine(tmp_path, capsys):
    tensors = [tensor("x", "batch", 3)], [tensor("y", "batch", 3)]
    network = write_graph(tmp_path / "model.onnx", [node("Neg", "x", "y")], *tensors)
    np.savez(tmp_path / "feed.npz", **FEED)
    assert main([str(network), str(tmp_path / "feed.npz")]) == 0
    assert json.loads(capsys.readouterr().out)["load_seconds"] >= 0


@pytest.mark.parametrize("output", ["", "Segmentation fault", '{"unknown": 1}'])
def test_refuses_an_engine_that_does_not_load(output, tmp_path):
    with pytest.raises(SourceFault, match=r"engine int8\.onnx does not load in a fresh process"):
        measure_in_child(Path("int8.onnx"), FEED, tmp_path, Runner(output))
