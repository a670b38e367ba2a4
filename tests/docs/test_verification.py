"""docs/verification.md: what never ran has what would show it, what ran on a GPU its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "verification.md"


def section(title, text):
    """What stands below a heading."""
    (found,) = re.findall(rf"^{re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found


def rows(text):
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def test_everything_that_never_ran_says_what_would_show_it():
    table = rows(section("## What never ran", PAGE.read_text()))
    assert len(table) > 10 and {len(row) for row in table} == {3}
    assert [row[0] for row in table if not all(row)] == []


def test_everything_that_ran_on_a_gpu_names_its_rows():
    table = rows(section("## What ran on a GPU", PAGE.read_text()))
    named = {name for row in table for name in re.findall(r"`(test_\w+\.py)`", row[1])}
    assert len(table) > 5 and all(row[1] for row in table)
    assert [name for name in named if not (ROOT / "tests/gpu" / name).is_file()] == []
