"""The grid of a comparison."""

from __future__ import annotations

import dataclasses
import shutil

import pytest
import yaml

from onboarding.tree import read_tree
from roundhouse.errors import UsageError
from roundhouse.measure.compare.cells import (
    Candidate,
    cells,
    default_values,
    merge,
)
from roundhouse.measure.compare.cost import CellCost, total_sentence
from roundhouse.measure.compare.tree import (
    cell_model,
    cell_prefix,
    is_cell_model,
    subject,
    write_tree,
)
from roundhouse.paths import TREE_FOLDERS, current_paths

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


def test_runtimes_of_a_cpu_are_models_that_check_takes(tmp_path):
    """PyTorch has no INT8, which is a row with its reason."""
    paths = current_paths(None)
    found = subject(read_tree(paths.tree), "local", "sentence-embedder")
    axes = {
        "runtime": ["onnxruntime", "pytorch", "pytorch-compile"],
        "precision": ["fp32", "int8"],
        "instances": ["1", "2"],
    }
    grid = cells(axes, found.candidate)
    _, refused = write_tree(paths, tmp_path, found, grid, 100.0)
    expected = {f"{name}-int8-x{n}" for name in ("pytorch", "pytorch-compile") for n in (1, 2)}
    assert {cell.name for cell in grid} > expected == set(refused)
    assert "int8 is not for 'serving.runtime' pytorch" in refused["pytorch-int8-x1"]


def test_other_environments_deploy_no_cell(tmp_path):
    """A GPU's cell is no fault of an environment of CPUs in the same tree."""
    paths = current_paths(None)
    found = subject(read_tree(paths.tree), "dev", "sentence-embedder-int8")
    grid = cells(
        {"precision": ["fp16", "int8"], "instance_type": ["ml.g6.xlarge"]}, found.candidate
    )
    own, refused = write_tree(paths, tmp_path, found, grid, 100.0)
    assert refused == {}
    views = read_tree(own.tree).views
    models = {cell_model(found, cell) for cell in grid}
    assert models <= set(views["dev"].models)
    assert not models & set(views["local"].models)


def test_a_refused_cell_is_not_named_where_models_are_chosen_by_label(tmp_path):
    """Environments choose models by a label of the subject, the first of them as its own."""
    paths = current_paths(None)
    for name in TREE_FOLDERS:
        shutil.copytree(paths.tree / name, tmp_path / "tree" / name)
    model = tmp_path / "tree" / "models" / "sentence-embedder.yaml"
    model.write_text(model.read_text() + "labels: {team: search}\n")
    for environment in (tmp_path / "tree" / "environments").glob("*.yaml"):
        document = yaml.safe_load(environment.read_text())
        document["models"] = {**(document.get("models") or {}), "only": ["team=search"]}
        environment.write_text(yaml.safe_dump(document))
    own = dataclasses.replace(paths, tree=tmp_path / "tree")
    found = subject(read_tree(own.tree), "local", "sentence-embedder")
    grid = cells({"runtime": ["pytorch"], "precision": ["fp32", "int8"]}, found.candidate)
    own, refused = write_tree(own, tmp_path / "cells", found, grid, 100.0)
    assert set(refused) == {"pytorch-int8"}
    views = read_tree(own.tree).views
    (kept,) = (cell_model(found, cell) for cell in grid if cell.name not in refused)
    assert set(views["local"].models) == {"sentence-embedder", kept}
    assert set(views["dev"].models) == {"sentence-embedder"}


def test_no_cell_to_measure_costs_nothing():
    refused = CellCost(
        name="batch1", action="no such batch", is_measured=False,
        build_minutes=0.0, build_usd=0.0, endpoint_usd=0.0,
    )  # fmt: skip
    assert total_sentence([refused]) == "1 cell, none of which is to be measured: 0 USD."


def test_names_of_cells_are_no_other_models():
    """What is deleted after a comparison is a cell's, whatever models are called."""
    found = subject(read_tree(current_paths(None).tree), "dev", "sentence-embedder")
    grid = cells({"instances": ["1", "2"]}, found.candidate)
    prefix = cell_prefix(found)
    assert all(is_cell_model(found, cell_model(found, cell)) for cell in grid)
    for name in (found.name, prefix, f"{prefix}-shared", f"{prefix}0123456-v2", f"{prefix}012345"):
        assert not is_cell_model(found, name)
