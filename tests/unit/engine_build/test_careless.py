"""Careless hands on the real command.

Arrays of the wrong kind, mixing networks, empty addresses, streams that nobody reads.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from engine_build.__main__ import main
from engine_build.errors import InputRefused
from engine_build.evaluation.__main__ import main as runtimes
from engine_build.lengths.__main__ import main as lengths
from engine_build.settings import settings
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.trees import write_tensors_tree

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((120, 4)).astype(np.float32)
OTHERS = RANDOM.standard_normal((60, 4)).astype(np.float32)


class Unread(io.StringIO):
    """A stream whose reader has gone."""

    def write(self, text):
        super().write("")
        raise BrokenPipeError(32, "Broken pipe")


def build(*arguments, stdout=None, stderr=None):
    """Exit code and the two streams of a build."""
    out, err = (io.StringIO() if stream is None else stream for stream in (stdout, stderr))
    return (
        main([str(each) for each in arguments], {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.02"}, out, err),
        out,
        err,
    )


def of(root, *more):
    return (
        "--root",
        root,
        "--environment",
        "desk",
        "--model",
        "tiny",
        "--out",
        root / "out",
        "--format",
        "json",
        *more,
    )


def refused(*arguments):
    """Exit code and reason of a build that fails.

    JSON alone on stdout, the same sentence on stderr.
    """
    code, stdout, stderr = build(*arguments)
    failure = json.loads(stdout.getvalue())
    assert (failure["status"], failure["exit_code"]) == ("failed", code)
    assert f"FAILED: {failure['reason']}" in stderr.getvalue()
    assert "Traceback" not in stderr.getvalue() and "unforeseen" not in failure["reason"]
    return code, failure["reason"]


def tree(tmp_path: Path, network: Path | None = None, rows=ROWS, **settings):
    taught = {"calibration": {"x": OTHERS}} if settings.get("precision") in ("int8", "auto") else {}
    path = linear(tmp_path / "model.onnx") if network is None else network
    return write_tensors_tree(
        tmp_path / "root", path, {"validation": {"x": rows}, **taught}, **settings
    )


def one_node(
    tmp_path,
    operator,
    inputs="x",
    *,
    kind=TensorProto.FLOAT,
    given=None,
    gives=None,
    opset=17,
    **weights,
):
    """A network of one node, x [batch, 4] to y [batch, 4]."""
    x = tensor("x", "batch", 4, kind=kind) if given is None else given
    y = tensor("y", "batch", 4) if gives is None else gives
    attributes = {"to": TensorProto.FLOAT} if operator == "Cast" else {}
    return write_graph(
        tmp_path / "model.onnx",
        [node(operator, inputs, "y", **attributes)],
        [x],
        [y],
        opset=opset,
        **weights,
    )


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        (np.array([["a"] * 4] * 120), "holds <U1"),
        (ROWS.astype(complex), "holds complex128"),
        (np.zeros((120, 4), dtype="datetime64[s]"), "holds datetime64"),
        (np.where(np.abs(ROWS) > 2, np.nan, ROWS), "holds NaN"),
        (np.full((120, 4), 1e300), "holds float64 from 1e+300 to 1e+300"),
    ],
    ids=["text", "complex", "dates", "NaN", "too large"],
)
def test_refuses_arrays_that_the_input_cannot_hold(rows, fault, tmp_path):
    code, reason = refused(*of(tree(tmp_path, rows=rows)))
    assert (
        code,
        f"a sample of input 'x' {fault}" in reason,
        "takes FP32; save values" in reason,
    ) == (1, True, True)


@pytest.mark.parametrize(
    "rows", [ROWS, np.full((120, 4), 300), np.full((120, 4), -1)], ids=["fractions", "300", "-1"]
)
def test_refuses_values_that_a_byte_would_change(rows, tmp_path):
    code, reason = refused(
        *of(tree(tmp_path, one_node(tmp_path, "Cast", kind=TensorProto.UINT8), rows))
    )
    assert (code, "but the network takes UINT8" in reason) == (1, True)


def test_whole_numbers_that_a_byte_holds_are_taken_as_floats_too(tmp_path):
    rows = RANDOM.integers(0, 256, (120, 4)).astype(np.float64)
    assert (
        build(*of(tree(tmp_path, one_node(tmp_path, "Cast", kind=TensorProto.UINT8), rows)))[0] == 0
    )


def test_int8_of_a_layer_that_reads_the_networks_own_input_is_built(tmp_path):
    weight = RANDOM.standard_normal((4, 3)).astype(np.float32)
    code, stdout, _ = build(
        *of(tree(tmp_path, linear(tmp_path / "model.onnx", weight=weight), precision="int8"))
    )
    assert (code, json.loads(stdout.getvalue())["precision"]) == (0, "int8")


def test_refuses_int8_of_a_network_without_a_layer_for_it(tmp_path):
    code, reason = refused(*of(tree(tmp_path, one_node(tmp_path, "Relu"), precision="int8")))
    assert (code, "has no MatMul, Gemm or Conv with a constant float32 weight" in reason) == (
        5,
        True,
    )


def test_auto_takes_float_where_no_layer_can_be_int8(tmp_path):
    code, stdout, stderr = build(*of(tree(tmp_path, one_node(tmp_path, "Relu"), precision="auto")))
    report = json.loads(stdout.getvalue())
    assert (code, report["precision"]) == (0, "fp32")
    assert report["decision"].startswith(
        "fp32: int8 was not tried, since the network has no MatMul, Gemm or Conv"
    )
    assert "compile: fp32 for onnxruntime" in stderr.getvalue()


def test_refuses_a_source_that_answers_every_sample_alike(tmp_path):
    nodes = [node("Mul", "x zero", "y")]
    path = write_graph(
        tmp_path / "model.onnx",
        nodes,
        [tensor("x", "batch", 4)],
        [tensor("y", "batch", 4)],
        zero=np.zeros(4, "f"),
    )
    code, reason = refused(*of(tree(tmp_path, path)))
    assert (code, "answers all 120 validation samples alike" in reason) == (5, True)


def test_refuses_a_network_in_which_rows_change_each_other(tmp_path):
    nodes = [node("ReduceMean", "x", "mean", axes=[0], keepdims=1), node("Sub", "x mean", "y")]
    path = write_graph(
        tmp_path / "model.onnx", nodes, [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    )
    code, reason = refused(*of(tree(tmp_path, path)))
    assert (code, "answers a sample differently alone and in a batch of 3" in reason) == (5, True)


def test_refuses_a_network_that_answers_by_chance(tmp_path):
    nodes = [node("RandomNormalLike", "x", "noise"), node("Add", "x noise", "y")]
    path = write_graph(
        tmp_path / "model.onnx", nodes, [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    )
    code, reason = refused(*of(tree(tmp_path, path)))
    assert (code, "nor on chance" in reason) == (5, True)


def test_refuses_a_sequence_profile_for_a_network_without_that_axis(tmp_path):
    code, reason = refused(
        *of(tree(tmp_path, profile={"batch": [1, 2, 4], "sequence": [4, 8, 16]}))
    )
    assert (
        code,
        "no input is dynamic in axis 1, but the optimization profiles have a sequence" in reason,
    ) == (5, True)


def test_refuses_an_output_that_is_no_tensor_by_what_it_is(tmp_path):
    gives = helper.make_tensor_sequence_value_info("y", TensorProto.FLOAT, None)
    code, reason = refused(
        *of(tree(tmp_path, one_node(tmp_path, "SequenceConstruct", gives=gives)))
    )
    assert (code, "'y' has datatype sequence_type" in reason) == (5, True)


@pytest.mark.parametrize("opset", [5, 30])
def test_refuses_an_opset_that_onnxruntime_does_not_run_with_a_way_out(opset, tmp_path):
    code, reason = refused(*of(tree(tmp_path, one_node(tmp_path, "Relu", opset=opset))))
    assert (code, reason.endswith("; export it with opset 17.")) == (5, True)


@pytest.mark.parametrize(
    ("option", "words"),
    [("--out", "argument --out: it is empty"), ("--publish", "argument --publish: it")],
)
def test_refuses_an_empty_place_which_an_unset_variable_gives(option, words, tmp_path):
    code, reason = refused(*of(tmp_path, option, ""))
    assert (code, words in reason) == (1, True)


@pytest.mark.parametrize("more", [("--frmat", "x"), ("extra",), ("--format=json", "--frmat")])
def test_refuses_arguments_in_json_where_json_is_asked_for(more, tmp_path):
    assert refused(*of(tmp_path, *more))[0] == 1


@pytest.mark.parametrize("place", ["s3://", "s3://a b", "s3://bucket/folder"])
def test_refuses_an_address_that_is_no_bucket(place, tmp_path):
    code, reason = refused(*of(tree(tmp_path), "--publish", place))
    assert (code, reason) == (
        1,
        f"--publish {place} is no store; allowed: s3://BUCKET, or a folder's path.",
    )


def test_refuses_to_publish_into_a_file_before_anything_is_made(tmp_path):
    root = tree(tmp_path)
    code, reason = refused(*of(root, "--publish", root / "models/tiny.yaml"))
    assert (code, "tiny.yaml is no folder" in reason, (root / "out/networks").exists()) == (
        1,
        True,
        False,
    )


def test_build_goes_on_when_nobody_reads_its_stderr(tmp_path):
    root = tree(tmp_path)
    code, stdout, _ = build(*of(root), stderr=Unread())
    assert (code, json.loads(stdout.getvalue())["status"]) == (0, "built")
    assert "benchmark … " in (root / "out/build.log").read_text()


def test_refuses_a_stdout_that_nobody_reads_in_a_sentence(tmp_path):
    root = tree(tmp_path)
    code, _, stderr = build(*of(root), stdout=Unread())
    assert (code, "Traceback" in stderr.getvalue()) == (1, False)
    assert "FAILED: stdout takes no result ([Errno 32] Broken pipe)" in stderr.getvalue()
    assert json.loads(build(*of(root))[1].getvalue())["status"] == "known"


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (lengths, (), "required: --environment, --model, --texts"),
        (lengths, ("--buckets", "0"), "'0' is no count; give 1 or more"),
        (runtimes, ("--seconds", "nan"), "'nan' is no number of seconds"),
        (runtimes, ("--seconds", "inf"), "'inf' is no number of seconds"),
        (runtimes, ("--shapes=0",), "shape '0' is no BATCHxSEQUENCE"),
        (runtimes, ("--shapes=1x-4",), "shape '1x-4' is no BATCHxSEQUENCE"),
    ],
)
def test_refuses_arguments_of_the_other_commands_in_a_sentence(command, arguments, words):
    stderr = io.StringIO()
    assert command(arguments, io.StringIO(), stderr) == 1
    assert stderr.getvalue().startswith("FAILED: ") and words in stderr.getvalue()


def test_refuses_a_file_for_the_numbers_that_cannot_be_written(tmp_path):
    network, stderr = linear(tmp_path / "model.onnx"), io.StringIO()
    arguments = (
        "--network",
        network,
        "--shapes",
        "1",
        "--seconds",
        "0.02",
        "--json",
        tmp_path / "no/numbers.json",
    )
    assert runtimes([str(each) for each in arguments], io.StringIO(), stderr) == 1
    assert "numbers.json cannot be written (No such file or directory)" in stderr.getvalue()


@pytest.mark.parametrize("seconds", ["nan", "inf", "-1"])
def test_refuses_seconds_that_never_end(seconds):
    with pytest.raises(InputRefused, match="give a number of seconds, 0 or more"):
        settings({"ROUNDHOUSE_BENCHMARK_SECONDS": seconds})
