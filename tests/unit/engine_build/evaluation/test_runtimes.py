"""Runtimes of a machine, the rows that they answer, and what each takes of its memory.

The network is two multiplications, and a module does the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from engine_build.errors import NetworkRefused, SourceFault
from engine_build.evaluation.footprint import (
    MIB,
    RESERVED,
    USED,
    Footprint,
    device_memory_mib,
    main,
    measure_in_child,
    measure_plan,
    read_plan_as_triton,
)
from engine_build.evaluation.runtimes import (
    TorchModule,
    load_engine,
    other_subjects,
)
from engine_build.ort import BoundNetwork
from engine_build.runner import Ended
from tests.unit.engine_build.graphs import node, tensor, write_graph

WEIGHT = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)


class Module(torch.nn.Module):
    """x @ weight, and its double."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(WEIGHT))

    def forward(self, x):
        return x @ self.weight, 2 * (x @ self.weight)


class Source:
    """What a build would have loaded."""

    inputs = ("x",)
    module = Module().eval()

    def rows(self, feed):
        return TorchModule(self.module, self.inputs, device="cpu").rows(feed)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "model.onnx"
    outputs = [tensor(name, "batch", 3) for name in "ab"]
    nodes = [node("MatMul", "x w", "a"), node("Add", "a a", "b")]
    return write_graph(path, nodes, [tensor("x", "batch", 8)], outputs, w=WEIGHT)


def test_every_runtime_gives_the_same_rows(network):
    feed = {"x": np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)}
    expected = np.concatenate([feed["x"] @ WEIGHT, 2 * (feed["x"] @ WEIGHT)], axis=1)
    subjects = other_subjects({"fp32": network}, Source())
    assert [subject.runtime for subject in subjects] == ["onnxruntime", "pytorch"], "this machine"
    engines = [load_engine("onnxruntime", network), BoundNetwork(network, device="cpu")]
    for engine in (*engines, *(subject.load() for subject in subjects)):
        assert engine.rows(feed) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    half = TorchModule(Source.module, ("x",), device="cpu", half=True).rows(feed)
    assert half.dtype == np.float32 and half == pytest.approx(expected, abs=0.02)
    assert next(Source.module.parameters()).dtype == torch.float32, "the source stays as it was"


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
            if name == "cuMemPoolGetAttribute":
                arguments[2]._obj.value = {RESERVED: 32 * MIB, USED: 20 * MIB}[arguments[1]]
            return 2 if name == self._fails else 0

        return call


POOL_CALLS = ("cuDeviceGetMemPool", "cuMemPoolGetAttribute", "cuMemPoolGetAttribute")


@pytest.mark.parametrize("fails", [None, *CALLS])
def test_used_memory_is_what_nobody_may_take_and_none_where_the_driver_fails(fails):
    driver = Driver(fails)
    assert device_memory_mib(driver) == (58.0 if fails is None else None)
    assert fails is not None or tuple(driver.calls) == CALLS + POOL_CALLS


@pytest.mark.parametrize("fails", POOL_CALLS[:2])
def test_used_memory_where_cuda_has_no_memory_pool_is_what_is_not_free(fails):
    assert device_memory_mib(Driver(fails)) == 70.0


class Load:
    """Loads one plan after the other, and notes which are there at once."""

    def __init__(self, fits=2):
        self.open, self.most, self._fits = 0, 0, fits

    def __call__(self):
        if self.open == self._fits:
            raise NetworkRefused("no memory")
        self.open += 1
        self.most = max(self.most, self.open)
        return self

    def rows(self, feed):
        pass

    def close(self):
        self.open -= 1


@pytest.mark.parametrize(("fits", "mib"), [(2, 16.0), (1, 24.0)])
def test_plan_is_measured_beside_itself_where_two_fit(fits, mib, capsys):
    load, used = Load(fits), iter([500.0, 524.0, 524.0, 540.0])
    measured = measure_plan(load, FEED, device_mib=lambda: next(used))
    first = json.loads(capsys.readouterr().out)
    assert (first["device_memory_mib"], measured.device_memory_mib) == (24.0, mib)
    assert measured.host_memory_mib == first["host_memory_mib"]
    assert 0 <= measured.load_seconds < 1 and measured.host_memory_mib < 100
    assert (load.most, load.open) == (fits, fits - 1)


@pytest.mark.parametrize("copies", [False, True])
def test_plan_is_read_whole_whether_triton_copies_it_or_not(copies, tmp_path):
    (tmp_path / "model.plan").write_bytes(b"plan" * 50_000)
    assert read_plan_as_triton(tmp_path / "model.plan", copies=copies) == b"plan" * 50_000


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


def test_child_loads_and_runs_the_engine(network, tmp_path, capsys):
    np.savez(tmp_path / "feed.npz", x=np.ones((2, 8), dtype=np.float32))
    assert main([str(network), str(tmp_path / "feed.npz")]) == 0
    assert json.loads(capsys.readouterr().out)["load_seconds"] >= 0


@pytest.mark.parametrize("output", ["", "Segmentation fault", '{"unknown": 1}'])
def test_refuses_an_engine_that_does_not_load(output, tmp_path):
    with pytest.raises(SourceFault, match=r"engine int8\.onnx does not load in a fresh process"):
        measure_in_child(Path("int8.onnx"), FEED, tmp_path, Runner(output))
