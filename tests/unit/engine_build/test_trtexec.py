"""Golden command lines of both dialects."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine_build.errors import InputRefused
from engine_build.trtexec import Request, Shapes, command

INPUTS = ("input_ids", "attention_mask")
PROFILE = Shapes(inputs=INPUTS, batch=(1, 8, 32), sequence=(16, 128, 256))
FP16 = Request(
    network=Path("float.onnx"),
    plan=Path("fp16.plan"),
    precision="fp16",
    profiles=(PROFILE,),
    timing_cache=Path("timing.cache"),
    workspace_mib=4096,
)
INT8 = dataclasses.replace(
    FP16,
    network=Path("int8.onnx"),
    plan=Path("int8.plan"),
    precision="int8",
    strongly_typed=True,
    timing_cache=None,
    workspace_mib=None,
)
SHAPES = (
    "--minShapes=input_ids:1x16,attention_mask:1x16",
    "--optShapes=input_ids:8x128,attention_mask:8x128",
    "--maxShapes=input_ids:32x256,attention_mask:32x256",
)


def test_dialect_10_takes_precision_flags():
    assert command(FP16, 10).argv == (
        "trtexec",
        "--onnx=float.onnx",
        "--saveEngine=fp16.plan",
        "--fp16",
        *SHAPES,
        "--timingCacheFile=timing.cache",
        "--memPoolSize=workspace:4096M",
        "--skipInference",
    )


@pytest.mark.parametrize(
    ("precision", "flags"), [("fp32", ()), ("bf16", ("--bf16",)), ("int8", ("--int8", "--fp16")), ("fp8", ("--fp8", "--fp16"))]
)
def test_dialect_10_has_a_flag_for_each_precision(precision, flags):
    assert command(dataclasses.replace(FP16, precision=precision), 10).argv[3 : 3 + len(flags)] == flags


def test_dialect_10_says_strongly_typed_for_a_qdq_network():
    assert command(INT8, 10).argv == (
        "trtexec",
        "--onnx=int8.onnx",
        "--saveEngine=int8.plan",
        "--stronglyTyped",
        *SHAPES,
        "--skipInference",
    )


def test_dialect_11_has_no_typing_flags_at_all():
    assert command(INT8, 11).argv == ("trtexec", "--onnx=int8.onnx", "--saveEngine=int8.plan", *SHAPES, "--skipInference")


def test_several_profiles_are_numbered():
    image = Shapes(inputs=("pixels",), batch=(1, 2, 4))
    argv = command(dataclasses.replace(INT8, profiles=(image, image)), 11).argv
    assert [flag for flag in argv if flag.startswith("--profile")] == ["--profile=0", "--profile=1"]
    assert argv.count("--optShapes=pixels:2") == 2


@pytest.mark.parametrize(("precision", "flag"), [("fp16", "--fp16"), ("bf16", "--bf16"), ("int8", "--int8"), ("fp8", "--fp8")])
def test_refuses_precision_flags_in_dialect_11_by_name(precision, flag):
    with pytest.raises(InputRefused, match=f"TensorRT 11 has no {flag}"):
        command(dataclasses.replace(FP16, precision=precision), 11)
