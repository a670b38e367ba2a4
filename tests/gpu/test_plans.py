"""What TensorRT does with our contexts, their memory, their graphs, and every kind of tensor."""

from __future__ import annotations

import os
import re
import shutil
import statistics
import subprocess
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("orjson", reason="needs what the server needs")
from onnx import TensorProto

from container.archive import EngineArchive
from container.server.engines.loading import tensorrt_engine
from container.server.engines.tokens import Tokens
from container.tensorrt.bindings import bindings, error_logger
from container.tensorrt.faults import PlanRefused
from container.tensorrt.plan import Plan
from engine_build.tensorrt.half_precision import write_half_precision
from engine_build.tensorrt.plan import last_error
from onboarding.manifest import Manifest, ProfileRecord
from tests.gpu.plans import (
    FLOAT,
    GPU,
    HALF,
    INT64,
    MIB,
    CountedCuda,
    Layers,
    archive,
    ask,
    build,
    compile_by_trtexec,
    in_a_process,
    opened,
    plan_version,
    used_mib,
    write_network,
)
from tests.shared_libraries import tensorrt as stub_library

pytestmark = GPU
BATCHES = (1, 16, 64, 256, 1024, 2048)
ROWS = ((1, 4), (2, 4), (8, 4))
"""One profile of small matrices."""


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    return Layers(tmp_path_factory.mktemp("wide"), width=2048, layers=3)


@pytest.fixture(scope="module")
def wide_plan(wide):
    """Two profiles, the second with activations of 16 MiB."""
    return build(wide.path, wide.ranges(1, 8, 16), wide.ranges(1, 1024, 2048))


@pytest.fixture
def load():
    """Load a plan alone; refused ones raise."""
    trt, _ = bindings()
    plans = []

    def load(path):
        plans.append(Plan(path, trt=trt))
        return plans[-1]

    yield load
    while plans:
        plans.pop().close()


def scratch_mib(path):
    trt, _ = bindings()
    with closing(Plan(path, trt=trt)) as plan:
        return plan.scratch_bytes / MIB


def test_memory_is_given_after_the_profile_and_before_the_shapes(wide, wide_plan, record_property):
    """One context goes from profile to profile, and has its memory anew each time."""
    record_property("scratch_mib", scratch_mib(wide_plan))
    with opened(wide_plan) as runner:
        for rows in (4, 2048, 16, 17, 1024, 1):
            wide.check(runner, rows, seed=rows)


def test_one_block_of_memory_serves_every_context_of_a_slot(wide, wide_plan, record_property):
    scratch = scratch_mib(wide_plan)
    assert scratch > 4, "a context of its own memory would not be seen"
    shapes = [{"x": (rows, wide.width)} for rows in BATCHES]
    with opened(wide_plan, *shapes) as runner:
        before = used_mib()
        for seed in range(3):
            for rows in (*BATCHES, *reversed(BATCHES)):
                wide.check(runner, rows, seed=seed)
        each = (used_mib() - before) / len(BATCHES)
    record_property("scratch_mib", scratch)
    record_property("mib_a_context", each)
    assert each < scratch


def test_two_slots_answer_each_their_own_rows(wide, wide_plan):
    shapes = {"x": (16, wide.width)}
    with opened(wide_plan, shapes, slots=2) as runner:
        for seed in range(6):
            wide.check(runner, 16, seed=seed, slot=seed % 2)


def test_copies_in_and_out_are_nodes_of_the_graph_on_page_locked_memory(tmp_path, record_property):
    layers = Layers(tmp_path, width=256, layers=6)
    plan, cuda = build(layers.path, layers.ranges(1, 8, 16)), CountedCuda()
    with opened(plan, {"x": (8, 256)}, cuda=cuda) as runner:
        for seed in range(3):
            layers.check(runner, 8, seed=seed)
        cuda.calls.clear()
        for seed in range(5):
            layers.check(runner, 8, seed=seed)
        assert cuda.calls["cudaGraphLaunch"] == 5
        assert not {"cudaMemcpyAsync", "cudaMalloc", "cudaMallocHost"} & set(cuda.calls)
        for name, rows in (("graph_ms", 8), ("kernel_by_kernel_ms", 7)):
            record_property(name, median_ms(runner, layers.feed(rows)))


def median_ms(runner, feed, times=300):
    spans = []
    for _ in range(times):
        begin = time.perf_counter()
        ask(runner, feed)
        spans.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(spans)


def doubled(kind, zero=0):
    """Networks of one input: nodes and constants, and what numpy answers."""
    scale = np.float32(0.5)
    through_float = [
        ("Cast", "x", "f", {"to": FLOAT}),
        ("Add", "f f", "g", {}),
        ("Cast", "g", "y", {"to": kind}),
    ]
    if kind == TensorProto.BOOL:
        return [("Not", "x", "y", {})], {}, np.logical_not
    if kind == TensorProto.UINT8:
        return through_float, {}, lambda x: x + x
    if kind == TensorProto.INT8:
        nodes = [
            ("DequantizeLinear", "x s z", "f", {}),
            ("Relu", "f", "g", {}),
            ("QuantizeLinear", "g s z", "y", {}),
        ]
        return nodes, {"s": scale, "z": np.int8(zero)}, lambda x: np.maximum(x, 0)
    return [("Add", "x x", "y", {})], {}, lambda x: x + x


def one_type(folder, kind):
    nodes, constants, answer = doubled(kind)
    tensor = (kind, ["batch", 4])
    constants = {name: np.asarray(value) for name, value in constants.items()}
    path = write_network(folder / "types.onnx", nodes, {"x": tensor}, {"y": tensor}, constants)
    return build(path, {"x": ROWS}), answer


TYPES = {
    "FP32": (FLOAT, np.float32),
    "FP16": (HALF, np.float16),
    "INT32": (TensorProto.INT32, np.int32),
    "INT64": (INT64, np.int64),
    "BOOL": (TensorProto.BOOL, np.bool_),
    "INT8": (TensorProto.INT8, np.int8),
    "UINT8": (TensorProto.UINT8, np.uint8),
}


@pytest.mark.parametrize("name", TYPES)
def test_tensors_of_every_type_of_numpy_go_in_and_out(tmp_path, name):
    kind, dtype = TYPES[name]
    plan, answer = one_type(tmp_path, kind)
    values = np.arange(12).reshape(3, 4) - (0 if name in ("UINT8", "BOOL") else 6)
    feed = {"x": (values % 2 == 0 if name == "BOOL" else values).astype(dtype)}
    for declared in ((), ({"x": (3, 4)},)):
        with opened(plan, *declared) as runner:
            assert (runner.inputs["x"].dtype, runner.inputs["x"].rank) == (dtype, 2)
            for _ in range(3):
                found = ask(runner, feed)["y"]
                assert found.dtype == dtype and np.array_equal(found, answer(feed["x"]))


def test_refuses_tensors_of_a_type_that_numpy_lacks(tmp_path, load):
    plan, _ = one_type(tmp_path, TensorProto.BFLOAT16)
    with pytest.raises(PlanRefused, match="tensor x of the plan has a type that numpy lacks; "):
        load(plan)


def test_several_inputs_and_outputs_of_several_types_are_answered_by_name(tmp_path):
    nodes = [
        ("Not", "is_off", "is_on", {}),
        ("Where", "is_on x zero", "kept", {}),
        ("Add", "n n", "twice", {}),
    ]
    inputs = {
        "x": (FLOAT, ["batch", 4]),
        "is_off": (TensorProto.BOOL, ["batch", 4]),
        "n": (INT64, ["batch"]),
    }
    outputs = {"twice": (INT64, ["batch"]), "kept": (FLOAT, ["batch", 4])}
    path = write_network(
        tmp_path / "several.onnx", nodes, inputs, outputs, {"zero": np.zeros((), np.float32)}
    )
    plan = build(path, {"x": ROWS, "is_off": ROWS, "n": ((1,), (2,), (8,))})
    feed = {
        "x": np.arange(12, dtype=np.float32).reshape(3, 4),
        "is_off": np.arange(12).reshape(3, 4) % 3 == 0,
        "n": np.array([1, -(2**40), 3]),
    }
    with opened(plan, {name: values.shape for name, values in feed.items()}) as runner:
        for _ in range(3):
            found = ask(runner, feed)
            assert np.array_equal(found["twice"], 2 * feed["n"])
            assert np.array_equal(found["kept"], np.where(feed["is_off"], 0, feed["x"]))


def test_text_plan_of_several_outputs_answers_with_the_networks_first(tmp_path):
    """Whatever its name, and wherever its last node stands."""
    nodes = [
        ("Cast", "attention_mask", "mask", {"to": FLOAT}),
        ("ReduceSum", "mask axis", "count", {"keepdims": 1}),
        ("Cast", "input_ids", "ids", {"to": FLOAT}),
        ("Mul", "ids mask", "masked", {}),
        ("ReduceSum", "masked axis", "total", {"keepdims": 1}),
    ]
    tokens = (INT64, ["batch", "sequence"])
    path = write_network(
        tmp_path / "text.onnx",
        nodes,
        {"input_ids": tokens, "attention_mask": tokens},
        {"total": (FLOAT, ["batch", 1]), "count": (FLOAT, ["batch", 1])},
        {"axis": np.array([1])},
    )
    sizes = ((1, 4), (2, 8), (4, 16))
    plan = build(path, {"input_ids": sizes, "attention_mask": sizes})
    (tmp_path / "tokenizer.json").write_text("{}")
    root = archive(
        tmp_path / "archive",
        plan,
        {"text": ("BYTES", (-1, 1))},
        {"embedding": ("FP32", (-1, 1))},
        ProfileRecord(batch=(1, 2, 4), sequence=(4, 8, 16)),
        tokenizer=tmp_path / "tokenizer.json",
    )
    manifest = Manifest.from_bytes((root / "manifest.json").read_bytes())
    with closing(tensorrt_engine(EngineArchive(root=root, manifest=manifest), slots=1)) as engine:
        engine.warm_up()
        rows = [Tokens(np.array(ids, np.int32)) for ids in ([5, 6, 7], [9] * 11)]
        (found,) = engine.run(engine.prepare(rows), 0)
    assert found.tolist() == [[18.0], [99.0]]


def test_refuses_tensors_on_the_host(tmp_path, load):
    path = write_network(
        tmp_path / "host.onnx",
        [("Reshape", "x shape", "y", {})],
        {"x": (FLOAT, ["batch", 4]), "shape": (INT64, [2])},
        {"y": (FLOAT, [None, None])},
    )
    plan = build(path, {"x": ROWS}, shape_values={"shape": ((1, 4), (2, 4), (8, 4))})
    with pytest.raises(PlanRefused, match=r"it reads or writes shape on the host, as values"):
        load(plan)


def test_refuses_outputs_whose_shape_follows_from_values(tmp_path):
    path = write_network(
        tmp_path / "values.onnx",
        [("NonZero", "x", "n", {}), ("Transpose", "n", "y", {"perm": [1, 0]})],
        {"x": (FLOAT, ["batch", 4])},
        {"y": (INT64, [None, 2])},
    )
    plan = build(path, {"x": ROWS})
    words = "the shape of output y follows from values, not from shapes"
    with pytest.raises(PlanRefused, match=words), opened(plan, {"x": (2, 4)}):
        pass


def test_network_without_dynamic_axes_has_one_profile(tmp_path, load):
    tensor = (FLOAT, [3, 4])
    path = write_network(
        tmp_path / "fixed.onnx", [("Relu", "x", "y", {})], {"x": tensor}, {"y": tensor}
    )
    plan, feed = build(path), {"x": np.arange(-6, 6, dtype=np.float32).reshape(3, 4)}
    (profile,) = load(plan).profiles
    assert profile["x"].smallest == profile["x"].largest == (3, 4)
    with opened(plan, {"x": (3, 4)}) as runner:
        for _ in range(3):
            assert np.array_equal(ask(runner, feed)["y"], np.maximum(feed["x"], 0))


RUN = """
import sys
from pathlib import Path
import numpy as np
from tests.gpu.plans import ask, opened
plan, feed, answer = map(Path, sys.argv[1:4])
feed = dict(np.load(feed))
with opened(plan, {n: v.shape for n, v in feed.items()}, plugins=[*map(Path, sys.argv[4:])]) as r:
    for _ in range(3):
        found = ask(r, feed)
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


def test_plugin_with_a_creator_is_built_loaded_and_answers(tmp_path):
    folders = headers()
    if lacking := [name for name, folder in folders.items() if folder is None]:
        pytest.skip(
            f"no {' or '.join(lacking)} here; name its folder by TENSORRT_INCLUDE, CUDA_HOME"
        )
    library = tmp_path / "librotate.so"
    trt, _ = bindings()
    stub = stub_library(tmp_path, int(trt.__version__.split(".")[0]))
    source = Path(__file__).with_name("plugin.cpp")
    include = [f"-I{folder}" for folder in folders.values()]
    flags = ("-std=c++17", "-shared", "-fPIC", "-Wno-deprecated-declarations", *include)
    subprocess.run(("g++", *flags, source, stub, "-ldl", "-o", library), check=True)
    tensor = (FLOAT, ["batch", 4])
    path = write_network(
        tmp_path / "rotate.onnx",
        [("Rotate", "x", "r", {"shift": 1}), ("Relu", "r", "y", {})],
        {"x": tensor},
        {"y": tensor},
    )
    plan, ended = compile_by_trtexec(path, {"x": ROWS}, plugins=(library,))
    assert ended.code == 0, last_error(ended)
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
    with opened(plan, {"x": (256, 1024)}) as runner:
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
    with opened(plan, {"x": (8, 256)}) as runner:
        for seed in range(3):
            layers.check(runner, 8, seed=seed)
    trt, _ = bindings()
    runtime = trt.Runtime(error_logger(trt))
    level = runtime.deserialize_cuda_engine(plan.read_bytes()).hardware_compatibility_level
    record_property("level", level.name)
    assert level == trt.HardwareCompatibilityLevel.AMPERE_PLUS


def test_plan_names_the_build_that_wrote_it_more_exactly_than_the_wheel(wide_plan, record_property):
    trt, _ = bindings()
    record_property("plan", plan_version(wide_plan))
    record_property("wheel", trt.__version__)
    assert plan_version(wide_plan).startswith(trt.__version__)
