"""A candidate written into a model file: everything else stays."""

from __future__ import annotations

import pytest

from onboarding.yaml_text import load_yaml
from roundhouse.compare.write_back import edit_text

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
