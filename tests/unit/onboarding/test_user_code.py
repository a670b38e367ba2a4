"""A user's code and the rows of its examples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from onboarding.example_row import row_bytes, row_problem, row_shape
from onboarding.rules.user_code_rules import PACKAGES, code_problems

ROOT = Path(__file__).parents[3]
SOUND = """
import html, re
import numpy as np
from urllib.parse import unquote
from os import path

def preprocess(inputs, limit=5):
    return {name: np.asarray(value) for name, value in inputs.items()}
"""


def problems(source: str, function: str = "preprocess") -> list[tuple[int, str]]:
    return [(line, problem) for line, problem, _ in code_problems(source.encode(), function)]


def test_sound_file_has_no_problem():
    assert problems(SOUND) == []


def test_examples_of_the_docs_have_no_problem():
    for function, name in (("preprocess", "read_ticket"), ("postprocess", "sure_label")):
        source = (ROOT / f"docs/examples/processing/{name}.py").read_bytes()
        assert code_problems(source, function) == ()


@pytest.mark.parametrize("file", ["server.in", "triton.in", "builder.in"])
def test_packages_are_in_every_place_that_runs_the_code(file):
    lock = (ROOT / "requirements" / file).with_suffix(".txt").read_text()
    assert all(re.search(rf"^{package}==", lock, re.MULTILINE) for package in PACKAGES)


@pytest.mark.parametrize(
    ("source", "line", "problem"),
    [
        ("def preprocess(inputs:\n", 1, "is no Python: '(' was never closed"),
        ("x = '\0'", 1, "is no Python"),
        ("import re\n", 1, "has no function preprocess"),
        ("def postprocess(x):\n    return x\n", 1, "has no function preprocess"),
        ("\nclass preprocess:\n    pass\n", 2, "has preprocess as no plain function"),
        ("async def preprocess(x):\n    return x\n", 1, "has preprocess as no plain function"),
        ("def preprocess():\n    pass\n", 1, "has preprocess(), called with one argument"),
        ("def preprocess(a, b):\n    pass\n", 1, "has preprocess(a, b), called with one argument"),
        ("def preprocess(a, *, b):\n    pass\n", 1, "has preprocess(a, *, b), called with"),
    ],
)
def test_refuses_a_file_without_the_function(source, line, problem):
    (found,) = problems(source)
    assert found[0] == line and found[1].startswith(problem)


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
