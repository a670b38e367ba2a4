"""Cells in the shipped tree and its environments: what check takes, and what it refuses."""

from __future__ import annotations

import dataclasses
import shutil

import yaml

from onboarding.tree import read_tree
from roundhouse.compare.cells import cells
from roundhouse.compare.cost import CellCost, total_sentence
from roundhouse.compare.tree import cell_model, cell_prefix, is_cell_model, subject, write_tree
from roundhouse.paths import TREE_FOLDERS, current_paths


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
