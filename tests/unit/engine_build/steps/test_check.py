"""The compile check: what a child reports, and how it may die."""

from __future__ import annotations

import dataclasses
import io
import json

import onnx
import pytest

from engine_build.errors import NetworkRefused, NothingForInt8
from engine_build.log import Log
from engine_build.runner import TIMED_OUT, Ended
from engine_build.steps.check import UNAVAILABLE, compile_check
from engine_build.steps.compile import compile_candidates
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_tree

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


def test_auto_goes_on_without_int8_that_a_requested_precision_needs(tmp_path):
    graph, path, stream = graphs.chain("Relu"), tmp_path / "float.onnx", io.StringIO()
    graph.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 9
    onnx.save(graph, path)
    network = graphs.network(path)
    for precision in ("auto", "int8"):
        root = write_tree(tmp_path / precision, model("tiny", precision))
        tools = context(root, tmp_path / "out", store=None, runner=StandInRunner())
        tools = dataclasses.replace(tools, log=Log(stream))
        with tools.work:
            if precision == "auto":
                (candidate,) = compile_candidates(tools, {"float": network, "int8": network})
                assert candidate.precision == "fp32"
                continue
            with pytest.raises(NothingForInt8, match="cannot quantize the network dynamically"):
                compile_candidates(tools, {"float": network, "int8": network})
    assert "int8 is not tried: ONNX Runtime cannot quantize" in stream.getvalue()
