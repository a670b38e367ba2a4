"""Rows that a file writes as values: their shape, their bytes, and what is no row."""

from __future__ import annotations

import pytest

from onboarding.example_row import row_bytes, row_problem, row_shape


def test_one_value_is_a_row_of_one():
    assert (row_shape("a cat"), row_bytes("cat", "BYTES")) == ((1,), b"\x03\0\0\0cat")


def test_lists_in_lists_are_written_in_the_order_of_c():
    assert row_shape([[1, 2], [3, 4], [5, 6]]) == (3, 2)
    assert row_bytes([[1, 2], [3, 4]], "UINT8") == bytes([1, 2, 3, 4])


@pytest.mark.parametrize(
    ("value", "datatype", "dims"),
    [("text", "BYTES", (1,)), (True, "BOOL", (1,)), ([1, 2.5], "FP16", (-1,)), (7, "INT8", (-1,))],
)
def test_row_fits_its_tensor(value, datatype, dims):
    assert row_problem(value, datatype, dims) is None


@pytest.mark.parametrize(
    ("value", "datatype", "dims", "sentence"),
    [
        ([1, 2], "INT32", (3,), "it has shape [2], and dims are [3]"),
        ([[1], [2, 3]], "INT32", (-1, -1), "lists of different lengths"),
        ([], "INT32", (-1,), "an empty one"),
        (1.5, "INT32", (1,), "1.5 is no INT32"),
        (True, "FP32", (1,), "True is no FP32"),
        (1, "BYTES", (1,), "1 is no BYTES"),
        ({"a": 1}, "BYTES", (1,), "is no BYTES"),
        (300, "UINT8", (1,), "a value that UINT8 cannot hold"),
        (1e300, "FP32", (1,), "a value that FP32 cannot hold"),
        ([0] * 5000, "INT8", (-1,), "more than 4096 values"),
    ],
)
def test_refuses_what_is_no_row(value, datatype, dims, sentence):
    assert sentence in row_problem(value, datatype, dims)
