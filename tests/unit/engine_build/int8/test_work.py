"""Multiply-accumulates, counted by hand."""

from __future__ import annotations

import pytest

from engine_build.int8.work import multiply_accumulates, share
from tests.unit.engine_build.int8.graphs import (
    CLASSES,
    INNER,
    WIDTH,
    cnn,
    images,
    texts,
    transformer,
)
from tests.unit.engine_build.int8.test_calibration import feed


def test_transformer_work_holds_the_products_of_activations():
    tokens = 6
    work = list(
        multiply_accumulates(transformer(), feed(texts(1, seed=1, sequence=tokens))).values()
    )
    projection, ffn, product = (
        tokens * WIDTH * WIDTH,
        tokens * WIDTH * INNER,
        tokens * tokens * WIDTH,
    )
    assert work == [
        projection,
        projection,
        projection,
        product,
        product,
        projection,
        ffn,
        ffn,
        WIDTH * CLASSES,
    ]


def test_convolution_work_is_pixels_times_kernel():
    work = list(multiply_accumulates(cnn(), feed(images(1, seed=1))).values())
    assert work == [64 * 8 * 3 * 9, 64 * 8 * 8 * 9, 8 * CLASSES]


def test_share_is_a_part_of_all_work():
    assert share({"a": 3, "b": 1}, ("a",)) == pytest.approx(0.75)
