"""One fixture per fault: its bad tree has exactly that fault, its good tree none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from onboarding.tree import read_tree
from tests.unit.onboarding.trees import FIXTURES, tree_root

CASES = sorted((FIXTURES / "faults").glob("*.yaml"))


@pytest.fixture(params=CASES, ids=lambda path: path.stem)
def case(request) -> dict[str, Any]:
    return yaml.safe_load(request.param.read_text())


def test_refuses_the_fault_alone_with_its_place_and_words(case, tmp_path):
    root = tree_root(tmp_path, case["bad"])
    faults = read_tree(root).faults
    assert len(faults) == 1, "\n".join(map(str, faults))
    expected = case["fault"]
    assert faults[0].file == expected["file"]
    if "at" in expected:
        assert faults[0].line == _line(root / expected["file"], expected["at"])
    for words in expected["says"]:
        assert words in str(faults[0])


def test_accepts_the_pair_of_the_fault(case, tmp_path):
    assert read_tree(tree_root(tmp_path, case["good"])).faults == ()


def _line(path: Path, words: str) -> int:
    lines = [
        number for number, line in enumerate(path.read_text().splitlines(), 1) if words in line
    ]
    assert len(lines) >= 1
    return lines[0]
