"""The grid of a comparison."""

from __future__ import annotations

import pytest

from roundhouse.compare.cells import Candidate, cells, default_values, merge
from roundhouse.errors import UsageError

PROFILE = {"batch": [1, 8, 32], "sequence": [8, 64, 128]}
CANDIDATE = Candidate(
    is_gpu=False, has_calibration=True, instance_type="ml.c7i.large", profiles=(PROFILE,)
)


def test_cells_are_the_product_of_the_axes_in_their_own_order():
    grid = cells({"instances": ["1", "2"], "precision": ["fp32", "int8"]}, CANDIDATE)
    assert [cell.name for cell in grid] == ["fp32-x1", "fp32-x2", "int8-x1", "int8-x2"]


def test_a_cell_overrides_only_what_its_axes_say():
    (cell,) = cells({"precision": ["int8"], "instances": ["2"]}, CANDIDATE)
    assert cell.overrides == {"engine": {"precision": "int8"}, "serving": {"instances_per_gpu": 2}}


def test_a_float_cell_takes_the_calibration_away():
    (cell,) = cells({"precision": ["fp32"]}, CANDIDATE)
    assert cell.overrides["engine"]["calibration"] is None


def test_without_batching_every_profile_has_one_row():
    off, on = cells({"batching": ["off", "on"]}, CANDIDATE)
    assert off.overrides["engine"]["optimization_profiles"] == [{**PROFILE, "batch": [1, 1, 1]}]
    assert on.overrides == {}


def test_precisions_without_a_calibration_are_floats():
    without = Candidate(is_gpu=True, has_calibration=False, instance_type="ml.g5.xlarge")
    assert default_values("precision", without) == ("fp16",)
    assert default_values("precision", CANDIDATE) == ("fp32", "int8")


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"precision": ["int9"]}, "--precision int9"),
        ({"batching": ["maybe"]}, "--batching maybe"),
        ({"instances": ["0"]}, "--instances 0"),
        ({"instances": []}, "--instances: has no value"),
        ({"instances": [str(n) for n in range(1, 101)]}, "at most 64"),
    ],
)
def test_refuses_values_that_no_candidate_has(axes, words):
    with pytest.raises(UsageError, match=words):
        cells(axes, CANDIDATE)


def test_refuses_an_unknown_axis_and_types_that_are_not_named():
    with pytest.raises(UsageError, match="no such axis"):
        default_values("color", CANDIDATE)
    with pytest.raises(UsageError, match="give the types"):
        default_values("instance_type", CANDIDATE)


def test_an_override_is_merged_key_by_key_and_lists_are_replaced():
    assert merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}}) == {"a": {"b": 1, "c": [3]}}
