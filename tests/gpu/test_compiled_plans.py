"""Plans of trtexec's options: plugins, sparse weights, portable plans."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("orjson", reason="needs what the server needs")

from container.tensorrt.bindings import bindings, error_logger
from engine_build.tensorrt.half_precision import write_half_precision
from engine_build.tensorrt.plan import last_error
from tests.gpu.plans import (
    FLOAT,
    GPU,
    INT64,
    Layers,
    ask,
    build,
    compile_by_trtexec,
    in_a_process,
    open_plan,
    plan_version,
    write_network,
)
from tests.shared_libraries import tensorrt as stub_library

pytestmark = GPU
ROWS = ((1, 4), (2, 4), (8, 4))
"""One profile of small matrices."""
RUN = """
import sys
from pathlib import Path
import numpy as np
from tests.gpu.plans import ask, open_plan
plan, feed, answer = map(Path, sys.argv[1:4])
feed = dict(np.load(feed))
shapes, plugins = {name: values.shape for name, values in feed.items()}, map(Path, sys.argv[4:])
with open_plan(plan, shapes, plugins=[*plugins]) as runner:
    for _ in range(3):
        found = ask(runner, feed)
np.savez(answer, **found)
"""
"""Runs a plan three times, so at last as a graph, in a process that built nothing."""


def answer_elsewhere(folder, plan, feed, *plugins):
    np.savez(folder / "feed.npz", **feed)
    ended = in_a_process(RUN, plan, folder / "feed.npz", folder / "answer.npz", *plugins)
    assert ended.returncode == 0, ended.stderr
    return dict(np.load(folder / "answer.npz"))


def test_plan_of_tensorrts_own_plugin_loads_where_nothing_was_built(tmp_path):
    """ScatterElements with a reduction is a plugin of libnvinfer_plugin."""
    path = write_network(
        tmp_path / "scatter.onnx",
        [("ScatterElements", "x places x", "y", {"axis": 1, "reduction": "add"})],
        {"x": (FLOAT, ["batch", 4]), "places": (INT64, ["batch", 4])},
        {"y": (FLOAT, ["batch", 4])},
        opset=18,
    )
    plan = build(path, {"x": ROWS, "places": ROWS})
    feed = {
        "x": np.arange(8, dtype=np.float32).reshape(2, 4),
        "places": np.array([[0, 0, 1, 3], [3, 3, 3, 3]]),
    }
    expected = feed["x"].copy()
    for row, place, value in zip(expected, feed["places"], feed["x"], strict=True):
        np.add.at(row, place, value)
    assert np.array_equal(answer_elsewhere(tmp_path, plan, feed)["y"], expected)


def headers():
    """Folders of NvInfer.h and of cuda.h on this machine."""
    program, compiler = (shutil.which(name) for name in ("trtexec", "nvcc"))
    beside = Path(program or "/").resolve().parents[1]
    tensorrt = [
        *(Path(folder) for folder in filter(None, [os.environ.get("TENSORRT_INCLUDE")])),
        *(beside / name for name in ("include", "with/include")),
        *map(Path, ("/usr/include", "/usr/include/x86_64-linux-gnu")),
    ]
    cuda = [
        *(Path(folder) / "include" for folder in filter(None, [os.environ.get("CUDA_HOME")])),
        *([Path(compiler).resolve().parents[1] / "include"] if compiler else []),
        Path("/usr/local/cuda/include"),
    ]
    found = {}
    for name, folders in (("NvInfer.h", tensorrt), ("cuda.h", cuda)):
        found[name] = next((item for item in folders if (item / name).is_file()), None)
    return found


def rotating_plan(folder):
    """Return a plugin's library, and a plan that needs it: relu of rows rotated by one."""
    folders = headers()
    if lacking := [name for name, folder in folders.items() if folder is None]:
        pytest.skip(
            f"no {' or '.join(lacking)} here; name its folder by TENSORRT_INCLUDE, CUDA_HOME"
        )
    library = folder / "librotate.so"
    trt, _ = bindings()
    stub = stub_library(folder, int(trt.__version__.split(".")[0]))
    source = Path(__file__).with_name("plugin.cpp")
    include = [f"-I{folder}" for folder in folders.values()]
    flags = ("-std=c++17", "-shared", "-fPIC", "-Wno-deprecated-declarations", *include)
    subprocess.run(("g++", *flags, source, stub, "-ldl", "-o", library), check=True)
    tensor = (FLOAT, ["batch", 4])
    path = write_network(
        folder / "rotate.onnx",
        [("Rotate", "x", "r", {"shift": 1}), ("Relu", "r", "y", {})],
        {"x": tensor},
        {"y": tensor},
    )
    plan, ended = compile_by_trtexec(path, {"x": ROWS}, plugins=(library,))
    assert ended.code == 0, last_error(ended)
    return library, plan


def test_plugin_with_a_creator_is_built_loaded_and_answers(tmp_path):
    library, plan = rotating_plan(tmp_path)
    feed = {"x": np.arange(-4, 8, dtype=np.float32).reshape(3, 4)}
    expected = np.maximum(np.roll(feed["x"], -1, axis=1), 0)
    assert np.array_equal(answer_elsewhere(tmp_path, plan, feed, library)["y"], expected)
    without = in_a_process(RUN, plan, tmp_path / "feed.npz", tmp_path / "answer.npz")
    last = without.stderr.strip().splitlines()[-1]
    assert "PlanRefused" in last and "rotate.plan does not load" in last


def test_network_of_two_zeros_in_four_weights_takes_sparse_kernels(tmp_path, record_property):
    layers = Layers(tmp_path, width=1024, sparse=True)
    half = tmp_path / "sparse.onnx"
    write_half_precision(layers.path, half)
    plan, ended = compile_by_trtexec(
        half, layers.ranges(1, 256, 256), precision="fp16", is_sparse=True
    )
    assert ended.code == 0, last_error(ended)
    for name, words in (("eligible", "eligible"), ("chosen", "Chose")):
        lines = [line for line in ended.output.splitlines() if "(Sparsity)" in line]
        counts = [re.search(r"(\d+) layer", line) for line in lines if words in line]
        record_property(f"sparse_layers_{name}", [int(count[1]) for count in counts if count])
    with open_plan(plan, {"x": (256, 1024)}) as runner:
        feed = layers.feed(256)
        found, expected = ask(runner, feed)["y"], layers.answer(feed)
        assert np.linalg.norm(found - expected) < 5e-3 * np.linalg.norm(expected)


def test_portable_plan_runs_on_this_gpu(tmp_path, record_property):
    layers = Layers(tmp_path, width=256)
    plan, ended = compile_by_trtexec(
        layers.path, layers.ranges(1, 8, 16), hardware_compatibility="ampere+"
    )
    if ended.code != 0:
        pytest.skip(f"this TensorRT makes no portable plans: {last_error(ended)}")
    with open_plan(plan, {"x": (8, 256)}) as runner:
        for seed in range(3):
            layers.check(runner, 8, seed=seed)
    trt, _ = bindings()
    runtime = trt.Runtime(error_logger(trt))
    level = runtime.deserialize_cuda_engine(plan.read_bytes()).hardware_compatibility_level
    record_property("level", level.name)
    assert level == trt.HardwareCompatibilityLevel.AMPERE_PLUS


def test_plan_names_the_build_that_wrote_it_at_least_as_exactly_as_the_wheel(
    tmp_path, record_property
):
    layers = Layers(tmp_path, width=64)
    version = plan_version(build(layers.path, layers.ranges(1, 8, 16), level=0))
    trt, _ = bindings()
    record_property("plan", version)
    record_property("wheel", trt.__version__)
    assert version.startswith(trt.__version__) and len(version.split(".")) == 4
