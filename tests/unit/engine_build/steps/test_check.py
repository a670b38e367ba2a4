"""Steps between export and compilation: the data, the compile check, networks in FP16."""

from __future__ import annotations

import dataclasses
import io
import itertools
import json

import numpy as np
import onnx
import pytest

from engine_build.errors import BudgetMissed, InputRefused, NetworkRefused
from engine_build.log import Log
from engine_build.ort import OrtNetwork
from engine_build.runner import TIMED_OUT, Ended
from engine_build.sources.given_network import encoder_for
from engine_build.steps.check import UNAVAILABLE, compile_check
from engine_build.steps.compile import compile_candidates
from engine_build.steps.export import (
    check_calibration_classes,
    check_samples,
)
from engine_build.steps.half_precision import run
from engine_build.steps.step import BuildState
from engine_build.tensorrt.graph_types import tensor_types
from onboarding.model_spec import BudgetSpec, OptimizationProfileSpec
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.quantization.graphs import network, record
from tests.unit.engine_build.stand_ins import StandInRunner, request_of
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, GpuMachine
from tests.unit.engine_build.tiny import write_tensors_tree
from tests.unit.onboarding.onnx_bytes import onnx_bytes

PROFILES = (OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16)),)


def check(path, ended, log=None):
    log = Log(io.StringIO() if log is None else log)
    return compile_check(graphs.network(path), PROFILES, StandInRunner(check=ended), log)


@pytest.mark.parametrize(
    ("code", "output", "errors", "reason"),
    [
        (
            -11,
            "",
            "Segmentation fault",
            r"was killed by signal 11 \(Segmentation fault\); export it with opset 17 \(`engine",
        ),
        (-6, "", "", r"was killed by signal 6 \(no error output\)"),
        (
            -9,
            "",
            "",
            r"was killed \(no error output\), most often for want of memory: use a machine with "
            r"more of it",
        ),
        (1, '{"version": 1}', "no", r"ended with code 1 \(no\)"),
        (1, "[]", "no", r"ended with code 1 \(no\)"),
    ],
)
def test_refuses_a_network_that_crashes_the_compiler(code, output, errors, reason, tmp_path):
    ended = Ended(code=code, output=output, errors=errors)
    with pytest.raises(NetworkRefused, match=rf"refuses the float network: the compiler {reason}"):
        check(tmp_path, ended)


@pytest.mark.parametrize(
    ("code", "errors", "words"),
    [
        (
            UNAVAILABLE,
            "No module named 'tensorrt_rtx'",
            "cannot be loaded here (No module named 'tensorrt_rtx')",
        ),
        (TIMED_OUT, "still running", "did not end within 600 seconds"),
    ],
)
def test_compiler_that_is_missing_or_takes_too_long_decides_nothing_and_says_so(
    code, errors, words, tmp_path
):
    log = io.StringIO()
    assert check(tmp_path, Ended(code=code, output="", errors=errors), log) is None
    assert f"{words}: the float network was NOT checked" in log.getvalue()


def refusal(operator, message="no importer"):
    fault = {"message": message, "node": 0, "name": "/x", "operator": operator}
    output = json.dumps({"version": "1.7", "verdict": "fail", "seconds": 0.1, "faults": [fault]})
    return Ended(code=0, output=output, errors="")


def network_of(operator, tmp_path):
    nodes, values = [node(operator, "x", "y", name="/x")], [tensor("x", 4), tensor("y", 4)]
    return write_graph(tmp_path / "m.onnx", nodes, values[:1], values[1:])


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        *(
            ("RMSNormalization", message)
            for message in ("no importer", "Plugin not found", "false", "UNSUPPORTED_NODE")
        ),
        ("NonZero", "no importer"),
    ],
)
def test_refusal_is_evidence_where_tensorrts_list_supports_the_operator(
    tmp_path, operator, message
):
    record = check(network_of(operator, tmp_path), refusal(operator, message))
    assert record.verdict == "fail"
    assert record.reason.endswith(f"; TensorRT's operator list supports {operator}")


RANDOM = np.random.default_rng(0)


def check_data(request, network, log=None):
    encoder = encoder_for(network, request.longest_sequence)
    check_samples(request, network, encoder, Log(io.StringIO() if log is None else log))


def check_classes(request, network):
    encoder = encoder_for(network, request.longest_sequence)
    check_calibration_classes(request, network, encoder)


def tensors(tmp_path, rows, *, output=(-1, 3), calibration=None, **settings):
    """The request of a linear network with input x, and that network.

    The file of the tree takes whatever rows there are, as one in a bucket that `check_data`
    cannot read.
    """
    tmp_path.mkdir(exist_ok=True)
    path = linear(tmp_path / "model.onnx", weight=np.eye(4, 3, dtype=np.float32))
    any_rows = tmp_path / "any.onnx"
    inputs = {name: (1, (None, *array.shape[1:])) for name, array in rows.items()}
    any_rows.write_bytes(onnx_bytes(inputs))
    datasets = {"validation": rows}
    if calibration is not None:
        datasets["calibration"] = {"x": calibration}
    root = write_tensors_tree(tmp_path / "root", any_rows, datasets, **settings)
    shape = (-1, -1) if "profile" in settings else (-1, 4)
    return request_of(root), network(path, (record("x", *shape),), (record("y", *output),))


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        (
            {"x": np.zeros((5, 7))},
            {},
            r"a sample of input 'x' has shape \[7\], but the network takes \[4\] a row",
        ),
        (
            {"other": np.zeros((5, 4))},
            {},
            r"has no array for input 'x' of the network; it has: other; add it",
        ),
        (
            {"x": np.zeros((5, 9))},
            {"profile": {"batch": [1, 2, 4], "sequence": [4, 6, 8]}},
            r"5 of the 5 samples of accuracy dataset .* have 9 values on the sequence axis, "
            r"outside .*; allowed: 4 to 8",
        ),
        (
            {"x": np.zeros((5, 4))},
            {"metric": "agreement", "output": (-1, 3, 8)},
            r"gives y \[-1, 3, 8\], which are no scores of classes \[batch, classes\]",
        ),
    ],
    ids=["shape", "name", "profile", "no classes"],
)
def test_refuses_arrays_that_do_not_fit(rows, settings, words, tmp_path):
    with pytest.raises(InputRefused, match=words):
        check_data(*tensors(tmp_path, rows, **settings))


def test_calibration_without_labels_is_balanced_by_the_models_answers_or_refused(tmp_path):
    rows = {"x": RANDOM.standard_normal((5, 4))}
    settings = {"precision": "auto", "metric": "agreement"}
    request, known = tensors(tmp_path / "sound", rows, calibration=np.eye(20, 4), **settings)
    check_data(request, known)
    check_classes(request, known)
    alike = np.tile(np.eye(4)[1], (20, 1)) * RANDOM.uniform(1, 2, (20, 1))
    request, known = tensors(tmp_path / "alike", rows, calibration=alike, **settings)
    known = dataclasses.replace(known, labels=("calm", "glad", "sad"))
    words = r"of one class only \(glad, by the source model's own answers\)"
    with pytest.raises(InputRefused, match=words):
        check_classes(request, known)


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
    for place, (given, name) in enumerate(itertools.pairwise(names), index + 1):
        factor = np.array(1e4 if name.startswith("loud") else 1e-4, dtype=np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(factor, f"{name}.factor"))
        written = output if name == names[-1] else name
        mul = node("Mul", f"{given} {name}.factor", written, name=name)
        model.graph.node.insert(place, mul)
    onnx.save(model, folder / "loud.onnx")
    return folder / "loud.onnx"


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


@pytest.mark.parametrize(
    ("operator", "message"),
    [
        ("Foo", "no importer"),
        ("STFT", "no importer"),
        ("Unique", "no importer"),
        ("RotaryEmbedding", "no importer"),
        ("Mish", "dimensions do not match"),
        ("Mish", "Unsupported ONNX data type: DOUBLE"),
    ],
)
def test_refuses_where_tensorrt_may_refuse_too(tmp_path, operator, message):
    """No operator of any list, one with restrictions, faults of shapes and types."""
    words = rf"refuses the float network: node /x \(operator {operator}; .*{message}; way out: "
    with pytest.raises(NetworkRefused, match=words):
        check(network_of(operator, tmp_path), refusal(operator, message))
