"""Starter texts and the shipped sets: mixed from the first line on, and no line in two sets."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path
from typing import get_args

import pytest

from onboarding.starter_texts import Kind, starter_texts

pytestmark = pytest.mark.unit

DATA = Path(__file__).resolve().parents[3] / "models" / "data"
KINDS: tuple[Kind, ...] = get_args(Kind)
SHIPPED = {
    kind: (DATA / f"{kind}-sentences.txt").read_text(encoding="utf-8").splitlines()
    for kind in KINDS
}
STARTER = {kind: starter_texts(kind).splitlines() for kind in KINDS}
SETS = [pytest.param(sets, id=name) for name, sets in (("shipped", SHIPPED), ("starter", STARTER))]
USED = {"calibration": 256, "search": 128, "validation": 400}
"""Lines that a model file's defaults use."""


@pytest.mark.parametrize("sets", SETS)
def test_no_line_stands_in_two_sets_or_twice(sets):
    lines = [line.casefold() for kind in KINDS for line in sets[kind]]
    assert len(set(lines)) == len(lines)
    assert all(line == line.strip() != "" for line in lines)


@pytest.mark.parametrize("sets", SETS)
@pytest.mark.parametrize("kind", KINDS)
def test_first_lines_hold_the_mix(sets, kind):
    lines = sets[kind][: USED[kind]]
    letters = {character for line in lines for character in line if character.isalpha()}
    scripts = {unicodedata.name(character, "unknown").split()[0] for character in letters}
    assert {"LATIN", "CYRILLIC", "CJK", "HIRAGANA", "ARABIC"} <= scripts
    kinds = (
        (r"\w+( \w+){0,2}", 0.15),
        (r".*\?", 0.03),
        (r".*[{}()\[\]<>=;].*", 0.04),
        (r".*\d.*", 0.05),
        (r"[\W_]+", 0.01),
        (r".{60,}", 0.1),
    )
    for pattern, share in kinds:
        matches = [line for line in lines if re.fullmatch(pattern, line)]
        assert len(matches) / len(lines) >= share, pattern


@pytest.mark.parametrize("kind", KINDS)
def test_starter_sets_are_as_large_as_the_defaults_ask(kind):
    assert len(STARTER[kind]) == USED[kind]
