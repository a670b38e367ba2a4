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


def state_of(tools, machine, path=TINY):
    """A build's state behind its quantize step."""
    state = BuildState(tools)
    float_network = dataclasses.replace(machine.network("float", path), tokenizer=TOKENIZER)
    state.networks = {"float": float_network}
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


def test_precisions_are_those_that_are_compiled_in_fp16(machine):
    expected = {"auto": ("fp16", "int8"), "fp16": ("fp16",), "int8": ("int8",), "fp32": ()}
    requests = {name: machine.context(name, instance="ml.g5.xlarge").request for name in expected}
    assert {name: half_precisions(item) for name, item in requests.items()} == expected


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


BUDGET = r"precision fp16 misses its accuracy budget: the closest, fp16, has mean score"
UNKNOWN = "whose type ONNX does not know"


@pytest.mark.parametrize(
    ("path", "mean", "error", "words"),
    [
        (lambda folder: TINY, 0.99999, BudgetMissed, BUDGET),
        (without_types, 0.9, NetworkRefused, UNKNOWN),
    ],
    ids=["outside the budget", "cannot be written"],
)
def test_refuses_fp16_before_a_gpu_compiles_it_and_auto_leaves_it_out(
    machine, tmp_path, path, mean, error, words
):
    tools = strict(machine.context("fp16"), mean)
    with tools.work, pytest.raises(error, match=words):
        run(tools, state_of(tools, machine, path(tmp_path)))
    tools = strict(machine.context("auto"), mean)
    with tools.work:
        state = state_of(tools, machine, path(tmp_path))
        run(tools, state)
        assert set(state.refused) == {"fp16"} and words[-20:] in state.refused["fp16"]
        if error is BudgetMissed:
            candidates = compile_candidates(tools, state.networks, state.refused)
            assert [candidate.precision for candidate in candidates] == ["fp32"]


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
