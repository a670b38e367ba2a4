"""The grid of a comparison."""

from __future__ import annotations

import dataclasses

import pytest

from roundhouse.compare.cells import (
    Candidate,
    cells,
    default_values,
    merge,
)
from roundhouse.errors import UsageError

CANDIDATE = Candidate(
    is_gpu=False,
    has_calibration=True,
    instance_type="ml.c7i.large",
    largest_batch=24,
    preferred_batch_sizes=(4, 8, 24),
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


def test_without_batching_the_same_plan_is_served_one_row_at_a_time():
    off, on = cells({"batching": ["off", "on"]}, CANDIDATE)
    batching = {"max_batch_size": 1, "preferred_batch_sizes": None, "max_queue_delay_us": None}
    assert off.overrides == {"serving": {"dynamic_batching": batching}}
    assert on.overrides == {}


def test_a_largest_batch_leaves_out_preferred_sizes_above_it():
    eight, largest = cells({"max_batch": ["8", "24"]}, CANDIDATE)
    batching = {"max_batch_size": 8, "preferred_batch_sizes": [4, 8]}
    assert eight.overrides == {"serving": {"dynamic_batching": batching}}
    assert largest.overrides == {"serving": {"dynamic_batching": {"max_batch_size": 24}}}
    assert (eight.name, largest.name) == ("batch8", "batch24")


def test_a_server_that_batches_nothing_is_one_cell_whatever_its_largest_batch():
    axes = {"batching": ["off", "on"], "max_batch": ["2", "4"], "queue_delay": ["0", "100"]}
    names = [cell.name for cell in cells(axes, CANDIDATE)]
    waits = [f"batching-batch{most}-wait{delay}us" for most in (2, 4) for delay in (0, 100)]
    assert names == ["single", *waits]


def test_largest_batches_are_powers_of_two_up_to_the_profiles():
    assert default_values("max_batch", CANDIDATE) == ("1", "2", "4", "8", "16", "24")
    assert default_values("queue_delay", CANDIDATE)[0] == "0"


def test_refuses_a_delay_of_the_python_server():
    on_python = dataclasses.replace(CANDIDATE, server="python")
    with pytest.raises(UsageError, match="the Python server waits for no fuller batch"):
        default_values("queue_delay", on_python)


@pytest.mark.parametrize("runtime", ["pytorch", "pytorch-compile"])
def test_pytorch_is_fp32_in_the_python_server_without_calibration(runtime):
    (cell,) = cells({"runtime": [runtime]}, CANDIDATE)
    assert (cell.name, cell.overrides["serving"]["runtime"]) == (runtime, runtime)
    assert cell.overrides["serving"]["server"] == "python"
    assert cell.overrides["serving"]["dynamic_batching"]["max_queue_delay_us"] == 0
    nothing = {"calibration": None, "sensitivity_search": None}
    assert cell.overrides["engine"] == {"precision": "fp32", **nothing}


def test_default_runtimes_keep_the_files_server_and_precision():
    (cell,) = cells({"runtime": ["onnxruntime"]}, CANDIDATE)
    assert cell.overrides == {"serving": {"runtime": "onnxruntime"}}


def test_axis_of_precisions_decides_beside_that_of_runtimes():
    axes = {"precision": ["fp32", "int8"], "runtime": ["onnxruntime-tensorrt"], "batching": ["off"]}
    grid = cells(axes, CANDIDATE)
    assert [cell.name for cell in grid] == [
        "onnxruntime-tensorrt-fp32-single",
        "onnxruntime-tensorrt-int8-single",
    ]
    assert [cell.overrides["engine"]["precision"] for cell in grid] == ["fp32", "int8"]
    assert {cell.overrides["serving"]["dynamic_batching"]["max_batch_size"] for cell in grid} == {1}


def test_runtimes_by_default_are_those_of_the_hardware():
    on_gpu = Candidate(is_gpu=True, has_calibration=False, instance_type="ml.g5.xlarge")
    assert default_values("runtime", CANDIDATE) == ("onnxruntime", "pytorch")
    assert default_values("runtime", on_gpu) == ("tensorrt", "onnxruntime-cuda", "pytorch")


def test_precisions_without_a_calibration_are_floats():
    without = Candidate(is_gpu=True, has_calibration=False, instance_type="ml.g5.xlarge")
    assert default_values("precision", without) == ("fp16",)
    assert default_values("precision", CANDIDATE) == ("fp32", "int8")


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ({"precision": ["int9"]}, "--axes precision=int9"),
        ({"runtime": ["torch"]}, "--axes runtime=torch"),
        ({"batching": ["maybe"]}, "--axes batching=maybe"),
        ({"instances": ["0"]}, "--axes instances=0"),
        ({"instances": []}, "--axes instances: has no value"),
        ({"max_batch": ["0"]}, "--axes max_batch=0: rows of the server's largest batch, from 1"),
        ({"queue_delay": ["1s"]}, "--axes queue_delay=1s: microseconds"),
        ({"instances": [str(n) for n in range(1, 101)]}, "has 100 cells.*at most 64"),
    ],
)
def test_refuses_values_that_no_candidate_has(axes, words):
    with pytest.raises(UsageError, match=words):
        cells(axes, CANDIDATE)


def test_an_override_is_merged_key_by_key_and_lists_are_replaced():
    assert merge({"a": {"b": 1, "c": [1, 2]}}, {"a": {"c": [3]}}) == {"a": {"b": 1, "c": [3]}}
