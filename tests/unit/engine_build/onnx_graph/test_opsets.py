"""Operator sets that a platform's TensorRT documents."""

from __future__ import annotations

import pytest

from engine_build.onnx_graph.onnx_file import opset_range, refuse_opset
from onboarding.platform import serving_platforms

PLATFORMS = serving_platforms()


@pytest.mark.parametrize(
    ("tensorrt", "allowed"),
    [
        ("10.16.1.11", (9, 24)),
        ("10.15.0", (9, 24)),
        ("10.3.0", (9, 20)),
        ("11.0.0", (9, 25)),
        ("11.4.0.106", (9, 25)),
        ("8.6", None),
    ],
)
def test_range_is_that_of_the_newest_release_not_after(tensorrt, allowed):
    assert opset_range(tensorrt) == allowed


def test_exported_opset_is_read_by_every_platform():
    for platform in PLATFORMS.values():
        refuse_opset(17, platform)


def test_platform_without_tensorrt_has_no_rule():
    refuse_opset(26, PLATFORMS["triton-24.10-cpu"])


READS = r"TensorRT 10.16.1.11 of platform triton-26.05 reads 9 to 24; export it with opset 17"


def test_int8_takes_opset_13_and_float_older_ones():
    refuse_opset(13, PLATFORMS["triton-26.05"], may_be_int8=True)
    refuse_opset(12, PLATFORMS["triton-24.10-cpu"])
