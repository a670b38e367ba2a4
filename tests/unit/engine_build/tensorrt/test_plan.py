"""Plans read back: the inspector's JSON of both majors, and plans unlike the request."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from engine_build.errors import NetworkRefused
from engine_build.runner import Ended
from engine_build.tensorrt.inspection import inspection
from engine_build.tensorrt.plan import (
    ExpectedPlan,
    InspectedPlan,
    check_plan,
    inspect_plan,
    last_error,
    write_integer_inputs,
)
from onboarding.manifest import TensorRecord

ASKED = ExpectedPlan(
    precision="int8",
    tensorrt="10.16.1.11",
    inputs=tuple(
        TensorRecord(name=name, datatype="INT64", shape=(-1, -1))
        for name in ("input_ids", "attention_mask")
    ),
    outputs=(TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, 16)),),
    profiles=1,
    opt_shapes=(("input_ids", (2, 8)), ("attention_mask", (2, 8))),
)


VERSION_TOLD = Ended(
    code=0, output="[I] Plan was created with TensorRT version 10.16.1.11\n", errors=""
)


def tensor(kind, name="t"):
    return {"Name": name, "Location": "Device", "Dimensions": [1, 8], "Format/Datatype": kind}


def layer(name, kind="Half", **changes):
    return {
        "Name": name,
        "LayerType": "gemm",
        "Inputs": [tensor(kind)],
        "Outputs": [tensor("Half")],
        **changes,
    }


def bindings(*layers, names=("input_ids", "attention_mask", "sentence_embedding")):
    return json.dumps({"Layers": list(layers), "Bindings": list(names)})


def io_tensors(
    *layers, inputs=("input_ids", "attention_mask"), outputs=("sentence_embedding",), profiles=1
):
    ranges = [
        {
            "MinShape": [1, 4],
            "OptShape": [2, 8],
            "MaxShape": [4, 16],
            "Format": "Row major linear INT64 format",
        }
    ]
    tensors = [
        {
            "Name": name,
            "IOMode": mode,
            "DataType": "Int64",
            "Dimensions": [-1, -1],
            "ProfileInfo": ranges * profiles,
        }
        for mode, names in (("Input", inputs), ("Output", outputs))
        for name in names
    ]
    return json.dumps({"Layers": list(layers), "I/O Tensors": tensors})


@pytest.mark.parametrize(
    "text", [bindings(layer("a"), layer("b", "Int8")), io_tensors(layer("a"), layer("b", "Int8"))]
)
def test_both_majors_tell_tensors_and_layers(text):
    found = inspection(text)
    assert found.tensors == ("input_ids", "attention_mask", "sentence_embedding")
    assert (found.layers, found.int8_layers) == (2, 1)


def test_eleven_tells_inputs_from_outputs_and_counts_profiles():
    found = inspection(io_tensors(layer("a"), profiles=3))
    assert (found.inputs, found.outputs, found.profiles) == (
        ASKED.input_names,
        ASKED.output_names,
        3,
    )


def test_layers_of_further_profiles_are_not_counted_again():
    names = ("x", "y", "x [profile 1]", "y [profile 1]")
    found = inspection(bindings(layer("a"), layer("a [profile 1]"), names=names))
    assert (found.tensors, found.layers, found.profiles) == (("x", "y"), 1, 2)


@pytest.mark.parametrize(
    ("described", "is_int8"),
    [
        (layer("a", "Thirty-two wide channel vectorized row major Int8 format"), True),
        (layer("a", "Row major linear FP16 format", Weights={"Type": "Int8", "Count": 4}), True),
        (
            layer("a", "N/A due to dynamic shapes", TacticName="sm80_xmma_gemm_i8i8_i8i32_f32_tn"),
            True,
        ),
        ({**layer("a"), "Inputs": [{"Name": "t", "DataType": "INT8", "Format": "kLINEAR"}]}, True),
        (layer("a", "Row major linear UInt8 format"), False),
        (layer("a", "Int8", LayerType="Reformat"), False),
        (layer("a", Outputs=[tensor("Int8")]), False),
        ("__myl_only_a_name", False),
    ],
)
def test_int8_layers_are_those_that_read_int8_and_compute(described, is_int8):
    assert inspection(bindings(described)).int8_layers == is_int8


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"Layers": []}', '{"Layers": [{"LayerType": "gemm"}], "Bindings": []}', "null"],
)
def test_refuses_an_account_that_is_none(text):
    with pytest.raises(NetworkRefused, match="the inspector's account of the plan cannot be read"):
        inspection(text)


def found(text=None, tensorrt="10.16.1.11"):
    text = bindings(layer("a", "Int8")) if text is None else text
    return InspectedPlan(tensorrt=tensorrt, inspection=inspection(text), median_ms=None)


@pytest.mark.parametrize("text", [bindings(layer("a", "Int8")), io_tensors(layer("a", "Int8"))])
def test_plan_that_was_asked_for_is_taken(text):
    check_plan(found(text), ASKED)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (
            found(tensorrt="10.16.1.12"),
            r"written by TensorRT 10\.16\.1\.12, and the platform serves 10\.16\.1\.11",
        ),
        (found(bindings(layer("a"))), "none of its 1 layers computes in INT8"),
        (
            found(bindings(layer("a", "Int8"), names=("input_ids", "y"))),
            "its inputs and outputs are input_ids, y, asked for were",
        ),
        (
            found(
                io_tensors(
                    layer("a", "Int8"),
                    inputs=("input_ids",),
                    outputs=("attention_mask", "sentence_embedding"),
                )
            ),
            "its inputs are input_ids, asked for were attention_mask, input_ids",
        ),
        (
            found(io_tensors(layer("a", "Int8"), profiles=2)),
            "2 optimization profiles, asked for were 1",
        ),
        (found(bindings()), "it has no layer"),
    ],
)
def test_refuses_a_plan_that_is_not_what_was_asked_for(plan, reason):
    with pytest.raises(NetworkRefused, match=f"the plan is not what was asked for: .*{reason}"):
        check_plan(plan, ASKED)


@pytest.mark.parametrize(
    "opaque", [layer("a", LayerType="Myelin"), layer("{ForeignNode[a...b]}", LayerType="Fused")]
)
def test_int8_inside_a_part_that_is_not_listed_is_not_missed(opaque):
    plan = found(bindings(opaque))
    assert (plan.inspection.int8_layers, plan.inspection.opaque_layers) == (0, 1)
    check_plan(plan, ASKED)


def test_float_plan_needs_no_int8_layer():
    check_plan(found(bindings(layer("a"))), replace(ASKED, precision="fp16"))


def test_integer_inputs_are_indices_that_every_table_has(tmp_path):
    image = TensorRecord(name="image", datatype="FP32", shape=(-1, 3))
    small = TensorRecord(name="kind", datatype="INT32", shape=(4,))
    written = dict(
        write_integer_inputs(replace(ASKED, inputs=(*ASKED.inputs, image, small)), tmp_path)
    )
    assert set(written) == {"input_ids", "attention_mask", "kind"}
    assert np.fromfile(written["input_ids"], dtype=np.int64).tolist() == [0] * 16
    assert np.fromfile(written["attention_mask"], dtype=np.int64).tolist() == [1] * 16
    assert np.fromfile(written["kind"], dtype=np.int32).tolist() == [0] * 4


class Answers:
    """A runner that gives prepared answers in turn."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.commands = []

    def find(self, program):
        return program

    def run(self, command):
        self.commands.append(command)
        return self.answers.pop(0)


def test_refuses_a_plan_without_a_version(tmp_path):
    silent = Ended(
        code=1, output="", errors="[11/21/2026-09:00:00] [E] Failed to verify a plan tag.\n"
    )
    with pytest.raises(
        NetworkRefused, match=r"does not name its TensorRT .*Failed to verify a plan tag"
    ):
        inspect_plan(tmp_path / "model.plan", ASKED, 10, Answers(silent))


def test_refuses_a_plan_that_does_not_run(tmp_path):
    broken = Ended(code=1, output="", errors="[E] Error Code 1: Cuda Runtime (out of memory)\n")
    with pytest.raises(
        NetworkRefused,
        match=r"does not run at its own opt shape .*code 1: Error Code 1: Cuda Runtime",
    ):
        inspect_plan(tmp_path / "model.plan", ASKED, 10, Answers(VERSION_TOLD, broken))


@pytest.mark.parametrize("compatible", [True, False])
def test_version_compatible_plan_is_run_as_one(tmp_path, compatible):
    runner = Answers(VERSION_TOLD, Ended(code=0, output="", errors=""))
    (tmp_path / "layers.json").write_text(bindings(layer("a", "Int8")))
    inspect_plan(tmp_path / "model.plan", replace(ASKED, version_compatible=compatible), 10, runner)
    assert ("--versionCompatible" in runner.commands[1].argv) == compatible


@pytest.mark.parametrize("dialect", [10, 11])
def test_plan_is_not_run_before_its_inputs_are_there(tmp_path, dialect):
    runner = Answers(VERSION_TOLD, Ended(code=0, output="", errors=""))
    (tmp_path / "layers.json").write_text(bindings(layer("a", "Int8")))
    inspect_plan(tmp_path / "model.plan", ASKED, dialect, runner)
    assert "--useCudaGraph" not in runner.commands[1].argv


def test_last_error_is_told_before_the_last_line():
    ended = Ended(code=1, output="[I] one\n[E] first\n[E] second\n&&&& FAILED\n", errors="")
    assert last_error(ended) == "second"
    assert last_error(Ended(code=-9, output="[I] one\n", errors="")) == "[I] one"
    assert last_error(Ended(code=-9, output="", errors="")) == "no output"
