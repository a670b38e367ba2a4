"""docs/verification.md and the acceptance run name the same things.

Each line that never ran has the step that would show it, or the reason why none does.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from roundhouse.acceptance.sequence import STEPS

pytestmark = pytest.mark.docs

PAGE = Path(__file__).resolve().parents[2] / "docs" / "verification.md"
NAMES = {step.name for step in STEPS}
NONE = re.compile(r"none(?: of [^:]+| loads it[^)]*)?(?::|\b) \S")


def section(title, text):
    """What stands below a heading."""
    (found,) = re.findall(rf"^{re.escape(title)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    return found


def rows(text):
    """The cells of a table's rows, without its head."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def fault(line):
    """Why a line has neither a step nor a reason; None: it has."""
    named = set(re.findall(r"`([a-z]+)`", line)) & NAMES
    return None if named or NONE.search(line) else line


def test_every_claim_has_a_step_or_a_reason():
    table = rows(section("# What was verified, and what never ran", PAGE.read_text()))
    assert len(table) > 20
    steps = {row[0]: row[3] if len(row) == 4 else "" for row in table}
    missing = [claim for claim, step in steps.items() if fault(step) is not None]
    assert missing == [], "name the step of roundhouse acceptance, or `none: WHY`, in column four"


def test_every_line_of_the_gpu_runtimes_has_a_step_or_a_reason():
    text = section("## What of the GPU runtimes never ran", PAGE.read_text())
    bullets = [" ".join(item.split()) for item in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]
    assert len(bullets) > 5
    for bullet in bullets:
        notes = re.findall(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", bullet)
        assert any(fault(note) is None for note in notes), bullet


def test_the_page_tells_of_every_step_in_its_order():
    table = rows(section("## The first day on a GPU", PAGE.read_text()))
    assert [row[0].strip("`") for row in table] == [step.name for step in STEPS]


def test_every_step_is_the_step_of_some_claim():
    claimed = set(
        re.findall(
            r"`([a-z]+)`", section("# What was verified, and what never ran", PAGE.read_text())
        )
    )
    assert NAMES - claimed <= {"drift", "destroy"}


def test_refuses_a_line_without_a_step():
    assert fault("somebody will look") == "somebody will look"
    assert fault("`stack`") == "`stack`"
    assert fault("`engines`") is None
    assert fault("none: no environment deploys it") is None
