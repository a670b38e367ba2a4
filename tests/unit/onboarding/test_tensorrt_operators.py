"""TensorRT's operator list is whole: it has every operator of one kind, and each once."""

from __future__ import annotations

from onboarding.tensorrt_operators import operator_list


def test_each_operator_stands_once_and_the_list_has_its_source():
    operators = operator_list()
    kinds = (operators.supported, tuple(operators.restricted), operators.unsupported)
    assert len(set().union(*kinds)) == sum(map(len, kinds)) == 200
    assert operators.source.startswith("https://github.com/onnx/onnx-tensorrt/")


def test_operators_of_the_review_are_supported():
    operators = operator_list()
    assert {"NonZero", "NonMaxSuppression", "RoiAlign"} <= set(operators.supported)
    assert operators.restricted["DeformConv"].startswith("one or two spatial axes")
    assert {"Unique", "Compress", "Det"} <= set(operators.unsupported)
