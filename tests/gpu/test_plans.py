"""What TensorRT does with our contexts, their memory, their graphs, and every kind of tensor."""

from __future__ import annotations

import statistics
import time
from contextlib import closing

import numpy as np
import pytest

pytest.importorskip("orjson", reason="needs what the server needs")
from onnx import TensorProto

from container.archive import EngineArchive
from container.server.engines.loading import tensorrt_engine
from container.server.engines.tokens import Tokens
from container.tensorrt.bindings import bindings
from container.tensorrt.faults import PlanRefused
from container.tensorrt.plan import Plan
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
    open_plan,
    used_mib,
    write_network,
)

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
    with open_plan(wide_plan) as runner:
        for rows in (4, 2048, 16, 17, 1024, 1):
            wide.check(runner, rows, seed=rows)


def test_one_block_of_memory_serves_every_context_of_a_slot(wide, wide_plan, record_property):
    scratch = scratch_mib(wide_plan)
    assert scratch > 4, "a context of its own memory would not be seen"
    shapes = [{"x": (rows, wide.width)} for rows in BATCHES]
    with open_plan(wide_plan, *shapes) as runner:
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
    with open_plan(wide_plan, shapes, slots=2) as runner:
        for seed in range(6):
            wide.check(runner, 16, seed=seed, slot=seed % 2)


def test_copies_in_and_out_are_nodes_of_the_graph_on_page_locked_memory(tmp_path, record_property):
    layers = Layers(tmp_path, width=256, layers=6)
    plan, cuda = build(layers.path, layers.ranges(1, 8, 16)), CountedCuda()
    with open_plan(plan, {"x": (8, 256)}, cuda=cuda) as runner:
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
        with open_plan(plan, *declared) as runner:
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
    with open_plan(plan, {name: values.shape for name, values in feed.items()}) as runner:
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
    engine = tensorrt_engine(EngineArchive(root=root, manifest=manifest), slots=1)
    with closing(engine._runner):
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
    with pytest.raises(PlanRefused, match=words), open_plan(plan, {"x": (2, 4)}):
        pass


def test_network_without_dynamic_axes_has_one_profile(tmp_path, load):
    tensor = (FLOAT, [3, 4])
    path = write_network(
        tmp_path / "fixed.onnx", [("Relu", "x", "y", {})], {"x": tensor}, {"y": tensor}
    )
    plan, feed = build(path), {"x": np.arange(-6, 6, dtype=np.float32).reshape(3, 4)}
    (profile,) = load(plan).profiles
    assert profile["x"].smallest == profile["x"].largest == (3, 4)
    with open_plan(plan, {"x": (3, 4)}) as runner:
        for _ in range(3):
            assert np.array_equal(ask(runner, feed)["y"], np.maximum(feed["x"], 0))
