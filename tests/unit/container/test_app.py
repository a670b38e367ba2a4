"""Faults of a start: a tokenizer that cannot be loaded, and the first line of any fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from container.server.app import tokenizer_fault

pytestmark = pytest.mark.unit

PATH = Path("/opt/ml/model/tokenizer.json")
AGAIN, LARGER = "build the engine again.", "choose an instance type with more memory."


@pytest.mark.parametrize(
    ("fault", "reason", "way_out"),
    [
        (ValueError("not JSON"), "(not JSON)", AGAIN),
        (Exception("expected value at line 1\ncolumn 2"), "(expected value at line 1)", AGAIN),
        (Exception("\n  \nno kernel"), "(no kernel)", AGAIN),
        (MemoryError(), "memory that is left: MemoryError)", LARGER),
        (OSError(12, "Cannot allocate memory"), "memory that is left: ", LARGER),
    ],
)
def test_tokenizer_that_cannot_be_loaded_says_why_and_the_way_out(fault, reason, way_out):
    sentence = str(tokenizer_fault(PATH, fault))
    assert sentence.startswith(f"The tokenizer {PATH} cannot be loaded (")
    assert reason in sentence and sentence.endswith(way_out)
