"""What NVIDIA's programs print: plans, machines, versions; and what was published of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from engine_build.errors import InputRefused, NetworkRefused
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
from engine_build.tensorrt.trtexec import BANNER, GpuHost, check_host, parse_host
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


A10G = "NVIDIA A10G, 580.95.05, 8.6"
L4 = "NVIDIA L4, 580.95.05, 8.9"
PASSED = "&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec --help\n=== Model ===\n"


class Machine:
    """Answers the two programs of a GPU machine."""

    def __init__(self, *gpus, banner=PASSED, smi_code=0, programs=("nvidia-smi", "trtexec")):
        self.gpus, self.banner, self.smi_code, self.programs = gpus, banner, smi_code, programs

    def find(self, program):
        return program if program in self.programs else None

    def run(self, command):
        if command.argv[0] == "trtexec":
            return Ended(code=0, output=self.banner, errors="")
        return Ended(code=self.smi_code, output="".join(f"{gpu}\n" for gpu in self.gpus), errors="")


def request(capability="8.6", gpu="A10G", tensorrt="10.16.1.11", minimum_driver=580):
    return SimpleNamespace(
        compute_capability=capability,
        gpu=gpu,
        engine_key="c0ffee",
        runtime=SimpleNamespace(version=tensorrt),
        platform=SimpleNamespace(name="triton-26.05", minimum_driver=minimum_driver),
    )


OLD_DRIVER = A10G.replace("580.95", "535.10")


@pytest.mark.parametrize(
    ("changes", "gpu", "forward_compatible"),
    [
        ({}, A10G, False),
        ({"minimum_driver": None, "tensorrt": "10.16.1"}, OLD_DRIVER, False),
        ({"capability": "8.9", "gpu": None}, L4, False),
        ({}, OLD_DRIVER, True),
    ],
    ids=["same", "no least driver", "compatible level", "forward compatible"],
)
def test_machine_of_the_request_is_accepted(changes, gpu, forward_compatible):
    host = check_host(request(**changes), Machine(gpu), forward_compatible=forward_compatible)
    assert f"{host.gpu}, {host.driver}, {host.compute_capability}" == gpu


@pytest.mark.parametrize(
    ("changes", "machine", "reason"),
    [
        (
            {"capability": "8.9"},
            Machine(A10G),
            r"A10G has compute capability 8\.6, but engine c0ffee is for 8\.9",
        ),
        (
            {"capability": "8.9", "gpu": "L40S"},
            Machine(L4),
            r"GPU is NVIDIA L4, but engine c0ffee is for L40S.*hardware_compatibility",
        ),
        (
            {},
            Machine(A10G.replace("580.95", "575.10")),
            r"driver is 575\.10\.05, but platform triton-26\.05 needs 580 or newer.*"
            r"codebuild_gpu: false",
        ),
        (
            {"tensorrt": "10.14.1.48"},
            Machine(A10G),
            r"trtexec is of TensorRT 10\.16\.1\.11, but .* serves 10\.14\.1\.48",
        ),
        ({}, Machine(A10G, banner="trtexec: error\n"), "trtexec does not name its TensorRT"),
        ({}, Machine(A10G, programs=()), "nvidia-smi is not on this machine"),
        ({}, Machine(), r"finds no GPU on this machine \(it says: nothing\)"),
        ({}, Machine("Failed to initialize", smi_code=9), "finds no GPU .*Failed to initialize"),
        ({}, Machine(A10G, L4), r"several models \(NVIDIA A10G, NVIDIA L4\)"),
        ({}, Machine("NVIDIA A10G, 580"), "name, driver and compute capability are expected"),
    ],
)
def test_refuses_a_machine_that_cannot_build_the_engine(changes, machine, reason):
    with pytest.raises(InputRefused, match=reason):
        check_host(request(**changes), machine)


PUBLISHED = Path(__file__).resolve().parents[3] / "fixtures" / "published_trtexec"


def text_of(name):
    return (PUBLISHED / name).read_text(encoding="utf-8")


def test_inspector_file_of_10_16_is_read_whole():
    listed = inspection(text_of("layers-10.16.1.11.json"))
    assert listed.tensors == {"x", "y", "z"}
    assert (listed.inputs, listed.profiles) == (None, None)
    assert (listed.layers, listed.int8_layers, listed.opaque_layers) == (9, 0, 0)


def test_layers_of_a_second_profile_are_left_out_that_do_not_name_it_themselves():
    text = text_of("profiles-10.16.json")
    assert text.count('"LayerType"') == 26
    assert inspection(text).layers == 13


def test_banner_of_10_16_names_version_and_build_and_that_of_10_2_does_not():
    match = BANNER.search(text_of("trtexec-10.16.1.11.log"))
    assert match is not None and match.groups() == ("101601", "11")
    assert BANNER.search(text_of("trtexec-10.2.0.log")) is None


def test_nvidia_smi_of_an_h200_is_read():
    expected = GpuHost(gpu="NVIDIA H200", driver="580.159.04", compute_capability="9.0")
    assert parse_host(text_of("nvidia-smi-h200.csv").strip()) == expected


def test_refuses_a_log_in_the_place_of_the_inspectors_file():
    with pytest.raises(NetworkRefused, match="cannot be read"):
        inspection(text_of("trtexec-10.16.1.11.log"))


@pytest.mark.parametrize(
    "text",
    ["", "[]", '{"Layers": []}', '{"Layers": [{"LayerType": "gemm"}], "Bindings": []}', "null"],
)
def test_refuses_a_document_that_is_not_the_inspectors(text):
    with pytest.raises(NetworkRefused, match="the inspector's account of the plan cannot be read"):
        inspection(text)
