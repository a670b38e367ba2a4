"""Networks in FP16, judged in ONNX Runtime before any GPU is asked."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import onnx
import pytest

from engine_build.errors import BudgetMissed, NetworkRefused
from engine_build.ort import OrtNetwork
from engine_build.sources.given_network import encoder_for
from engine_build.steps.compile import compile_candidates
from engine_build.steps.half_precision import PREFIX, half_precisions, run
from engine_build.steps.step import BuildState, record_names
from engine_build.tensorrt.graph_types import tensor_types
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.graphs import node
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, GpuMachine

TOKENIZER = TINY.with_name("tokenizer.json")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return GpuMachine(tmp_path, monkeypatch)


def state_of(tools, machine, path=TINY, *names):
    """A build's state behind its quantize step; `names` of the networks that there are."""
    state = BuildState(tools)
    float_network = dataclasses.replace(machine.network("float", path), tokenizer=TOKENIZER)
    state.networks = {"float": float_network}
    if "int8" in names:
        state.networks["int8"] = machine.networks()["int8"]
    state.encoder = encoder_for(float_network, 16)
    samples = tools.request.validation.values
    feeds = state.encoder.feeds(samples, 32)
    state.reference = np.concatenate([OrtNetwork(TINY).rows(feed) for feed in feeds])
    return state


def strict(tools, mean):
    accuracy = tools.request.model.accuracy
    accuracy = accuracy.model_copy(
        update={"metric": "relative_error", "budget": BudgetSpec(mean=mean)}
    )
    spec = tools.request.model.model_copy(update={"accuracy": accuracy})
    return dataclasses.replace(tools, request=dataclasses.replace(tools.request, model=spec))


def without_types(folder):
    """The tiny network with an operator whose type nobody knows."""
    model = onnx.load(TINY)
    last = model.graph.node[-1]
    unknown = node("MurmurHash3", last.input[0], "unknown", domain="com.microsoft")
    last.input[0] = "unknown"
    model.graph.node.insert(len(model.graph.node) - 1, unknown)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, folder / "unknown.onnx")
    return folder / "unknown.onnx"


def loud(folder):
    """The tiny network, whose embeddings are far beyond FP16's range between two of its nodes."""
    model = onnx.load(TINY)
    index = next(index for index, item in enumerate(model.graph.node) if item.op_type == "Add")
    add = model.graph.node[index]
    output, add.output[0] = add.output[0], "before"
    names = ["before", "loud1", "loud2", "quiet1", "quiet2"]
    for place, (tensor, name) in enumerate(itertools.pairwise(names), index + 1):
        factor = np.array(1e4 if name.startswith("loud") else 1e-4, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(factor, f"{name}.factor"))
        written = output if name == names[-1] else name
        mul = node("Mul", f"{tensor} {name}.factor", written, name=name)
        model.graph.node.insert(place, mul)
    onnx.save(model, folder / "loud.onnx")
    return folder / "loud.onnx"


@pytest.mark.parametrize(
    ("precision", "instance", "precisions"),
    [
        ("auto", "ml.g5.xlarge", ("fp16", "int8")),
        ("fp16", "ml.g5.xlarge", ("fp16",)),
        ("int8", "ml.g5.xlarge", ("int8",)),
        ("fp32", "ml.g5.xlarge", ()),
    ],
)
def test_precisions_are_those_that_are_compiled_in_fp16(precision, instance, precisions, machine):
    assert half_precisions(machine.context(precision, instance=instance).request) == precisions


def test_networks_are_compared_once_and_kept_for_the_check(machine):
    tools = machine.context("fp16")
    with tools.work:
        state = state_of(tools, machine)
        run(tools, state)
        name = record_names(tools.work_store, tools.request, PREFIX)
        assert len(name) == 1
        first = tools.work_store.read(name[0])
        state.reference = state.reference * np.nan  # a known record is not made again
        run(tools, state)
    assert tools.work_store.read(name[0]) == first
    network = state.half_networks["fp16"]
    assert network.precision == "fp16 in FP16" and not state.refused


def test_refuses_fp16_that_misses_the_budget_before_a_gpu_compiles_it(machine):
    tools = strict(machine.context("fp16"), 0.99999)
    words = r"precision fp16 misses its accuracy budget: the closest, fp16, has mean score"
    with tools.work, pytest.raises(BudgetMissed, match=words):
        run(tools, state_of(tools, machine))


def test_auto_leaves_out_what_misses_the_budget_with_the_reason(machine):
    tools = strict(machine.context("auto"), 0.99999)
    with tools.work:
        state = state_of(tools, machine)
        run(tools, state)
        assert set(state.refused) == {"fp16"} and "misses its accuracy" in state.refused["fp16"]
        candidates = compile_candidates(tools, state.networks, state.refused)
    assert [candidate.precision for candidate in candidates] == ["fp32"]


def test_auto_leaves_out_a_network_that_cannot_be_written(machine, tmp_path):
    tools = machine.context("auto")
    with tools.work:
        state = state_of(tools, machine, without_types(tmp_path))
        run(tools, state)
    assert "whose type ONNX does not know" in state.refused["fp16"]


def test_refuses_a_network_that_cannot_be_written_in_the_requested_precision(machine, tmp_path):
    tools = machine.context("fp16")
    with tools.work, pytest.raises(NetworkRefused, match=r"whose type ONNX does not know"):
        run(tools, state_of(tools, machine, without_types(tmp_path)))


def test_node_beyond_the_range_is_fp32_in_every_copy_of_the_network(machine, tmp_path):
    tools = machine.context("fp16")
    with tools.work:
        state = state_of(tools, machine, loud(tmp_path))
        run(tools, state)
        half = state.half_networks["fp16"].path
        first = half.read_bytes()
        state.reference = state.reference * np.nan  # a known record is not made again
        run(tools, state)
        assert state.half_networks["fp16"].path.read_bytes() == first
        (candidate,) = compile_candidates(tools, state.networks)
    assert candidate.path.with_name("network.onnx").read_bytes() == first
    log = tools.log._stream.getvalue()
    (line,) = (line for line in log.splitlines() if "FP32 there" in line)
    assert line.strip().startswith("node loud2: its output reaches ")
    assert line.endswith("and FP16 ends at 65,504: FP32 there")
    types = tensor_types(onnx.load_from_string(first))
    assert (types["loud1"], types["loud2"]) == (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)
