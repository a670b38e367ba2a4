"""Plans read back: the inspector's JSON of both majors, and plans unlike the request."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from engine_build.errors import NetworkRefused
from engine_build.runner import Ended
from engine_build.tensorrt.plan import (
    ExpectedPlan,
    InspectedPlan,
    check_plan,
    inspect_plan,
    inspection,
    last_error,
    write_integer_inputs,
)
from onboarding.manifest import TensorRecord

INPUTS, OUTPUTS = ("input_ids", "attention_mask"), ("sentence_embedding",)
EXPECTED = ExpectedPlan(
    precision="int8",
    tensorrt="10.16.1.11",
    inputs=tuple(TensorRecord(name=name, datatype="INT64", shape=(-1, -1)) for name in INPUTS),
    outputs=(TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, 16)),),
    profiles=1,
    opt_shapes=(("input_ids", (2, 8)), ("attention_mask", (2, 8))),
)


def layer(name, kind="Half", **changes):
    tensor = {"Name": "t", "Location": "Device", "Dimensions": [1, 8]}
    inputs = [{**tensor, "Format/Datatype": kind}]
    outputs = [{**tensor, "Format/Datatype": "Half"}]
    return {"Name": name, "LayerType": "gemm", "Inputs": inputs, "Outputs": outputs, **changes}


def bindings(*layers, names=(*INPUTS, *OUTPUTS)):
    return json.dumps({"Layers": list(layers), "Bindings": list(names)})


def io_tensors(*layers, inputs=INPUTS, outputs=OUTPUTS, profiles=1):
    ranges = {"MinShape": [1, 4], "OptShape": [2, 8], "MaxShape": [4, 16], "Format": "Row major"}
    fields = {"DataType": "Int64", "Dimensions": [-1, -1], "ProfileInfo": [ranges] * profiles}
    tensors = [
        {"Name": name, "IOMode": mode, **fields}
        for mode, names in (("Input", inputs), ("Output", outputs))
        for name in names
    ]
    return json.dumps({"Layers": list(layers), "I/O Tensors": tensors})


INT8 = layer("a", "Int8")


@pytest.mark.parametrize(
    ("described", "is_int8"),
    [
        (layer("a", "Thirty-two wide channel vectorized row major Int8 format"), True),
        (layer("a", "Row major linear FP16 format", Weights={"Type": "Int8", "Count": 4}), True),
        (layer("a", "N/A due to dynamic shapes", TacticName="gemm_i8i8_i8i32_f32_tn"), True),
        (layer("a", Inputs=[{"Name": "t", "DataType": "INT8", "Format": "kLINEAR"}]), True),
        (layer("a", "Row major linear UInt8 format"), False),
        (layer("a", "Int8", LayerType="Reformat"), False),
        (layer("a", Outputs=[{"Name": "t", "Format/Datatype": "Int8"}]), False),
        ("__myl_only_a_name", False),
    ],
)
def test_int8_layers_are_those_that_read_int8_and_compute(described, is_int8):
    assert inspection(bindings(described)).int8_layers == is_int8


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"Layers": []}', '{"Layers": [{"LayerType": "gemm"}], "Bindings": []}', "null"],
)
def test_refuses_a_document_that_is_not_the_inspectors(text):
    with pytest.raises(NetworkRefused, match="the inspector's account of the plan cannot be read"):
        inspection(text)


def inspected(text, tensorrt="10.16.1.11"):
    return InspectedPlan(tensorrt=tensorrt, inspection=inspection(text), median_ms=None)


@pytest.mark.parametrize(
    ("plan", "reason"),
    [
        (
            inspected(bindings(INT8), tensorrt="10.16.1.12"),
            r"written by TensorRT 10\.16\.1\.12, and the platform serves 10\.16\.1\.11",
        ),
        (inspected(bindings(layer("a"))), "none of its 1 layers computes in INT8"),
        (
            inspected(bindings(INT8, names=("input_ids", "y"))),
            "its inputs and outputs are input_ids, y, expected attention_mask, input_ids, sent",
        ),
        (
            inspected(io_tensors(INT8, inputs=INPUTS[:1], outputs=(*INPUTS[1:], *OUTPUTS))),
            "its inputs are input_ids, expected attention_mask, input_ids",
        ),
        (inspected(io_tensors(INT8, profiles=2)), "2 optimization profiles, expected 1"),
        (inspected(bindings()), "it has no layer"),
    ],
)
def test_refuses_a_plan_that_is_not_what_was_requested(plan, reason):
    with pytest.raises(NetworkRefused, match=f"the plan is not what was requested: .*{reason}"):
        check_plan(plan, EXPECTED)


@pytest.mark.parametrize(
    "opaque", [layer("a", LayerType="Myelin"), layer("{ForeignNode[a...b]}", LayerType="Fused")]
)
def test_int8_inside_a_part_that_is_not_listed_is_not_missed(opaque):
    plan = inspected(bindings(opaque))
    assert (plan.inspection.int8_layers, plan.inspection.opaque_layers) == (0, 1)
    check_plan(plan, EXPECTED)


def test_integer_inputs_are_indices_that_every_table_has(tmp_path):
    image = TensorRecord(name="image", datatype="FP32", shape=(-1, 3))
    small = TensorRecord(name="kind", datatype="INT32", shape=(4,))
    expected = replace(EXPECTED, inputs=(*EXPECTED.inputs, image, small))
    types = {"input_ids": np.int64, "attention_mask": np.int64, "kind": np.int32}
    values = {
        name: np.fromfile(path, dtype=types[name]).tolist()
        for name, path in write_integer_inputs(expected, tmp_path)
    }
    assert values == {"input_ids": [0] * 16, "attention_mask": [1] * 16, "kind": [0] * 4}


def test_refuses_a_plan_that_does_not_name_its_version(tmp_path):
    errors = "[11/21/2026-09:00:00] [E] Failed to verify a plan tag\n"
    runner = SimpleNamespace(run=lambda _: Ended(code=1, output="", errors=errors))
    reason = r"does not name its TensorRT .*Failed to verify a plan tag"
    with pytest.raises(NetworkRefused, match=reason):
        inspect_plan(tmp_path / "model.plan", EXPECTED, 10, runner)


def test_both_majors_list_tensors_and_layers_and_are_accepted():
    for document, inputs, profiles in ((bindings, None, None), (io_tensors, set(INPUTS), 1)):
        plan = inspection(document(layer("a"), layer("b", "Int8")))
        assert plan.tensors == {*INPUTS, *OUTPUTS}
        assert (plan.layers, plan.int8_layers) == (2, 1)
        assert (plan.inputs, plan.profiles) == (inputs, profiles)
        check_plan(inspected(document(INT8)), EXPECTED)
    names = ("x", "y", "x [profile 1]", "y [profile 1]")
    plan = inspection(bindings(layer("a"), layer("a [profile 1]"), names=names))
    assert (plan.tensors, plan.layers, plan.profiles) == ({"x", "y"}, 1, 2)
    check_plan(inspected(bindings(layer("a"))), replace(EXPECTED, precision="fp16"))
    outputs = ("[I] one\n[E] first\n[E] second\n&&&& FAILED\n", "[I] one\n\n", "")
    errors = [last_error(Ended(code=1, output=output, errors="")) for output in outputs]
    assert errors == ["second", "[I] one", "no output"]
