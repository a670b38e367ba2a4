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


def batching(**changes):
    return {"serving": {"dynamic_batching": changes}}


NO_BATCHES = {"max_batch_size": 1, "preferred_batch_sizes": None, "max_queue_delay_us": None}
PLAIN = {"calibration": None, "sensitivity_search": None}
ON_PYTHON = {
    "server": "python",
    "response_cache": False,
    "dynamic_batching": {"preferred_batch_sizes": [], "max_queue_delay_us": 0},
}


@pytest.mark.parametrize(
    ("axes", "overrides"),
    [
        (
            {"precision": ["int8"], "instances": ["2"]},
            {"engine": {"precision": "int8"}, "serving": {"instances_per_gpu": 2}},
        ),
        ({"precision": ["fp32"]}, {"engine": {"precision": "fp32", **PLAIN}}),
        ({"batching": ["off"]}, batching(**NO_BATCHES)),
        ({"batching": ["on"]}, {}),
        ({"max_batch": ["8"]}, batching(max_batch_size=8, preferred_batch_sizes=[4, 8])),
        ({"max_batch": ["24"]}, batching(max_batch_size=24)),
        ({"queue_delay": ["5"]}, batching(max_queue_delay_us=5)),
        ({"instance_type": ["ml.g6.xlarge"]}, {"endpoint": {"instance_type": "ml.g6.xlarge"}}),
        ({"runtime": ["onnxruntime"]}, {"serving": {"runtime": "onnxruntime"}}),
        *(
            (
                {"runtime": [runtime]},
                {
                    "engine": {"precision": "fp32", **PLAIN},
                    "serving": {"runtime": runtime, **ON_PYTHON},
                },
            )
            for runtime in ("pytorch", "pytorch-compile")
        ),
    ],
)
def test_a_cell_overrides_only_what_its_axes_say(axes, overrides):
    (cell,) = cells(axes, CANDIDATE)
    assert cell.overrides == overrides


@pytest.mark.parametrize(
    ("axes", "names"),
    [
        (
            {"instances": ["1", "2"], "precision": ["fp32", "int8"]},
            ["fp32-x1", "fp32-x2", "int8-x1", "int8-x2"],
        ),
        (
            # A server that batches nothing is one cell.
            {"batching": ["off", "on"], "max_batch": ["2"], "queue_delay": ["0", "100"]},
            ["single", "batching-batch2-wait0us", "batching-batch2-wait100us"],
        ),
        (
            {"runtime": ["onnxruntime-tensorrt"], "precision": ["int8"], "batching": ["off"]},
            ["onnxruntime-tensorrt-int8-single"],
        ),
    ],
)
def test_cells_are_the_product_of_the_axes_in_their_own_order(axes, names):
    assert [cell.name for cell in cells(axes, CANDIDATE)] == names


def test_largest_batches_are_powers_of_two_up_to_the_profiles():
    assert default_values("max_batch", CANDIDATE) == ("1", "2", "4", "8", "16", "24")
    assert default_values("queue_delay", CANDIDATE)[0] == "0"


def test_refuses_a_delay_of_the_python_server():
    on_python = dataclasses.replace(CANDIDATE, server="python")
    with pytest.raises(UsageError, match="the Python server waits for no fuller batch"):
        default_values("queue_delay", on_python)


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
