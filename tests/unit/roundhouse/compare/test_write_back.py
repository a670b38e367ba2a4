"""A candidate written into a model file: everything else stays."""

from __future__ import annotations

import pytest

from onboarding.yaml_text import load_yaml
from roundhouse.compare.cells import cells
from roundhouse.compare.tree import subject
from roundhouse.compare.write_back import edit_text, write_candidate
from roundhouse.errors import RoundhouseError
from roundhouse.paths import Paths
from roundhouse.session import valid_tree
from tests.unit.roundhouse.engines import copied_tree

MODEL = "sentence-embedder"
TEXT = """\
# The file.
name: x
engine:
  precision: int8   # chosen
  calibration:      # sentences
    dataset: a.txt
    samples: 3

serving: {server: python}
"""


def test_values_are_replaced_and_added_and_comments_stay():
    after = edit_text(TEXT, {"engine": {"precision": "fp32"}, "serving": {"instances_per_gpu": 2}})
    assert after is not None and "precision: fp32   # chosen" in after and "# The file." in after
    assert load_yaml(after)["serving"] == {"server": "python", "instances_per_gpu": 2}


def test_none_removes_a_block_and_nothing_else():
    after = edit_text(TEXT, {"engine": {"calibration": None, "sensitivity_search": None}})
    assert after is not None and "calibration" not in after and "serving" in after


def test_sections_that_are_not_there_are_added():
    after = edit_text(TEXT, {"endpoint": {"instance_type": "ml.g5.xlarge"}})
    assert after is not None
    assert load_yaml(after)["endpoint"] == {"instance_type": "ml.g5.xlarge"}


@pytest.mark.parametrize("text", ["", "- a\n", "engine: 3\n"])
def test_a_file_that_cannot_take_it_is_none(text):
    assert edit_text(text or "x: 1\n", {"x": {"y": {"z": 1}}, "engine": {"a": 1}}) is None


@pytest.mark.parametrize(
    "profiles",
    [
        "[{batch: [1, 2, 4]},  # short\n    {batch: [1, 4, 8]}]",
        "\n    - {batch: [1, 2, 4]}  # short\n    - {batch: [1, 4, 8]}",
    ],
)
def test_a_list_with_comments_inside_is_not_replaced(profiles):
    overrides = {"engine": {"optimization_profiles": [{"batch": [1, 8, 16]}]}}
    text = f"engine:\n  optimization_profiles: {profiles}  # all\n"
    assert edit_text(text, overrides) is None
    after = edit_text("engine:\n  optimization_profiles: [{batch: [1, 2, 4]}]  # all\n", overrides)
    assert after is not None and "[1, 8, 16]" in after and after.endswith("# all\n")


@pytest.fixture
def paths(tmp_path):
    tree = copied_tree(tmp_path / "tree")
    return Paths(code=tree, tree=tree, build=tree / "build")


def write(paths, name):
    """Write a candidate of the repository's own model into its file."""
    chosen = subject(valid_tree(paths), "dev", MODEL)
    grid = cells({"precision": ["fp32", "fp16"], "instances": ["2"]}, chosen.candidate)
    return write_candidate(paths, chosen, grid, name)


@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_only_the_candidate_s_lines_change_whatever_their_endings(paths, newline):
    file = paths.tree / f"models/{MODEL}.yaml"
    file.write_bytes(file.read_bytes().replace(b"\n", newline))
    before = file.read_bytes().split(newline)
    assert "is fp32-x2 now." in write(paths, "fp32-x2")
    after = file.read_bytes().split(newline)
    written = load_yaml(file.read_text())
    assert (written["engine"]["precision"], written["serving"]["instances_per_gpu"]) == ("fp32", 2)
    assert not any(b"\n" in line or b"\r" in line for line in after)
    assert len([line for line in after if line not in before]) == 2


def test_refuses_a_candidate_that_another_environment_cannot_have_and_keeps_the_file(paths):
    file = paths.tree / f"models/{MODEL}.yaml"
    before = file.read_bytes()
    with pytest.raises(RoundhouseError, match="as fp16-x2 it has faults, so it stays: "):
        write(paths, "fp16-x2")
    assert file.read_bytes() == before
    assert not list(file.parent.glob(f".{file.name}.*"))
