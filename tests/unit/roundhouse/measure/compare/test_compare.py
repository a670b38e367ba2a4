"""A comparison: its cells, their ranking and sizing, and what it writes."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import yaml

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.errors import UsageError
from roundhouse.measure.compare.cells import cells, default_values
from roundhouse.measure.compare.cost import CellCost, cell_predictions, predictions_of
from roundhouse.measure.compare.result import (
    CellResult,
    Knee,
    Report,
    State,
    document,
    markdown,
    parse_demand,
    ranked,
    size,
    sizing_sentence,
    table_of,
)
from roundhouse.measure.compare.tree import (
    cell_model,
    cell_prefix,
    is_cell_model,
    subject,
    write_tree,
)
from roundhouse.paths import TREE_FOLDERS, current_paths
from tests.unit.roundhouse.gitops.repository import Repository

NO_BATCHES = {"max_batch_size": 1, "preferred_batch_sizes": None, "max_queue_delay_us": None}
PLAIN = {"calibration": None, "sensitivity_search": None}
ON_PYTHON = {
    "server": "python",
    "response_cache": False,
    "dynamic_batching": {"preferred_batch_sizes": [], "max_queue_delay_us": 0},
}


BASELINE = {"engine": {"precision": "fp32", **PLAIN}}


@pytest.mark.parametrize(
    ("axes", "name", "overrides"),
    [
        (
            {"instances": ["2"], "precision": ["int8"]},
            "int8-x2",
            {"engine": {"precision": "int8"}, "serving": {"instances_per_gpu": 2}},
        ),
        ({"precision": ["fp32"]}, "fp32", BASELINE),
        ({"batching": ["off"]}, "single", {"serving": {"dynamic_batching": NO_BATCHES}}),
        ({"batching": ["on"]}, "batching", {}),
        (
            {"instance_type": ["ml.g6.xlarge"]},
            "g6-xlarge",
            {"endpoint": {"instance_type": "ml.g6.xlarge"}},
        ),
        ({"runtime": ["onnxruntime"]}, "onnxruntime", {"serving": {"runtime": "onnxruntime"}}),
        *(
            (
                {"runtime": [runtime]},
                runtime,
                {**BASELINE, "serving": {"runtime": runtime, **ON_PYTHON}},
            )
            for runtime in ("pytorch", "pytorch-compile")
        ),
    ],
)
def test_a_cell_overrides_only_what_its_axes_say(axes, name, overrides):
    (cell,) = cells(axes)
    assert (cell.name, cell.overrides) == (name, overrides)


def test_cells_are_the_product_of_the_axes_in_their_own_order():
    grid = cells({"instances": ["1", "2"], "precision": ["fp32", "int8"]})
    assert [cell.name for cell in grid] == ["fp32-x1", "fp32-x2", "int8-x1", "int8-x2"]


@pytest.mark.parametrize(
    ("axis", "is_gpu", "has_calibration", "values"),
    [
        ("runtime", False, True, ("onnxruntime", "pytorch")),
        ("runtime", True, True, ("tensorrt", "onnxruntime-cuda", "pytorch")),
        ("precision", True, False, ("fp16",)),
        ("precision", False, True, ("fp32", "int8")),
        ("instances", True, True, ("1", "2")),
    ],
)
def test_values_by_default_are_those_of_the_hardware_and_the_file(
    axis, is_gpu, has_calibration, values
):
    assert default_values(axis, is_gpu=is_gpu, has_calibration=has_calibration) == values


def test_runtimes_of_a_cpu_are_models_that_check_takes(tmp_path):
    """PyTorch has no INT8, which is a row with its reason."""
    paths = current_paths(None)
    found = subject(read_tree(paths.tree), "local", "sentence-embedder")
    axes = {
        "runtime": ["onnxruntime", "pytorch", "pytorch-compile"],
        "precision": ["fp32", "int8"],
        "instances": ["1", "2"],
    }
    grid = cells(axes)
    _, refused = write_tree(paths, tmp_path, found, grid, 100.0)
    expected = {f"{name}-int8-x{n}" for name in ("pytorch", "pytorch-compile") for n in (1, 2)}
    assert {cell.name for cell in grid} > expected == set(refused)
    assert "int8 is not for 'serving.runtime' pytorch" in refused["pytorch-int8-x1"]


def test_other_environments_deploy_no_cell(tmp_path):
    """A GPU's cell is no fault of an environment of CPUs in the same tree."""
    paths = current_paths(None)
    found = subject(read_tree(paths.tree), "dev", "sentence-embedder-int8")
    grid = cells({"precision": ["fp16", "int8"], "instance_type": ["ml.g6.xlarge"]})
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
    grid = cells({"runtime": ["pytorch"], "precision": ["fp32", "int8"]})
    own, refused = write_tree(own, tmp_path / "cells", found, grid, 100.0)
    assert set(refused) == {"pytorch-int8"}
    views = read_tree(own.tree).views
    (kept,) = (cell_model(found, cell) for cell in grid if cell.name not in refused)
    assert set(views["local"].models) == {"sentence-embedder", kept}
    assert set(views["dev"].models) == {"sentence-embedder"}


def test_names_of_cells_are_no_other_models():
    """What is deleted after a comparison is a cell's, whatever models are called."""
    found = subject(read_tree(current_paths(None).tree), "dev", "sentence-embedder")
    grid = cells({"instances": ["1", "2"]})
    prefix = cell_prefix(found)
    assert all(is_cell_model(found, cell_model(found, cell)) for cell in grid)
    for name in (found.name, prefix, f"{prefix}-shared", f"{prefix}0123456-v2", f"{prefix}012345"):
        assert not is_cell_model(found, name)


def test_a_candidate_without_an_engine_is_predicted_by_a_measured_one_of_its_precision(tmp_path):
    root = Repository(tmp_path / "repository").root
    paths = dataclasses.replace(current_paths(None), tree=root)
    found = subject(read_tree(root), "dev", "model-001")
    grid = cells({"precision": ["int8", "bf16"]})
    own, refused = write_tree(paths, tmp_path / "cells", found, grid, 100.0)
    predictions = cell_predictions(own.tree, found, deployments(read_tree(own.tree), "dev"))
    int8, bf16 = (predictions[cell_model(found, cell)] for cell in grid)
    assert (refused, bf16, predictions["model-001"]) == ({}, (), ())
    shown, errors = predictions_of([CellCost(name="int8", action="measure", predictions=int8)])
    assert shown.rows[0][:2] == ("int8", "int8 8 x 64") and "off by" in errors
    assert predictions_of([CellCost(name="bf16", action="measure")]) is None


KNEE = Knee(
    rate=100.0, reason="more users bring no more answers", p50_ms=10.0, p95_ms=15.0, p99_ms=20.0
)


def cell(name, rate=100.0, p50=10.0, **changes) -> CellResult:
    knee = dataclasses.replace(KNEE, rate=rate, p50_ms=p50)
    fields = {"values": (("precision", name),), "model": "m", "instance_type": "ml.c7i.large"}
    return CellResult(**{**fields, "name": name, "state": State.measured, "knee": knee} | changes)


def row(result, price=1.0) -> CellResult:
    return result.sized(300.0, price, 0.5)


def failure(name) -> CellResult:
    return row(cell(name, knee=None, state=State.not_built, reason="no operator Foo: export it"))


def report(*rows) -> Report:
    return Report(
        model="m", environment="dev", region="us-east-1", slo_ms=50.0, demand=300.0,
        rows=ranked(rows), machine="here", date="2026-11-23", prices_date=None,
        command="roundhouse compare m",
    )  # fmt: skip


def test_rows_that_hold_come_first_and_the_cheapest_of_them():
    rows = [
        failure("broken"),
        row(cell("late", rate=None)),
        row(cell("unknown price"), price=None),
        row(cell("dear", rate=200.0), price=3.0),
        row(cell("cheap"), price=1.0),
        row(cell("quick", rate=149.0), price=1.0),
    ]
    names = [item.name for item in ranked(rows)]
    assert names == ["quick", "cheap", "dear", "unknown price", "late", "broken"]


def test_the_sizing_has_count_price_headroom_and_the_scaling_target():
    sentence = sizing_sentence(report(row(cell("a", rate=125.0), price=2.0)))
    assert "4 x ml.c7i.large; with one lost, 3 hold 300 requests/s and 25% more" in sentence
    assert "in us-east-1 is 2.00 USD an hour." in sentence
    assert "3,750 InvocationsPerInstance a minute, at which the demand runs on 5" in sentence
    assert "is not known" in sizing_sentence(report(row(cell("a"), price=None)))
    assert sizing_sentence(report(row(cell("a", rate=None)))) == ""


def test_every_form_has_every_row_and_the_reasons():
    result = report(row(cell("a")), row(cell("b|c"), None), failure("d"))
    text = markdown(result)
    rows = document(result)["rows"]
    json.dumps(document(result), allow_nan=False)
    assert [item["name"] for item in rows] == ["a", "b|c", "d"]
    assert "no operator Foo" in text and "b\\|c" in text
    assert rows[1]["sizing"]["usd_an_hour"] is None and table_of(result).chief == [0]
    nothing = report(row(cell("a", rate=None)), failure("b"))
    assert nothing.headline.startswith("None of 2") and table_of(nothing).chief == []


BENCHMARKS = Path(__file__).parents[5] / "docs" / "benchmarks"
PUBLISHED = json.loads((BENCHMARKS / "recommender-bert-large.json").read_text(encoding="utf-8"))
"""Inference Recommender's results for BERT-large: 8 configurations on 3 instance types."""
PRICES = PUBLISHED["usd_an_hour_of_one"]


@pytest.mark.parametrize(
    "row", PUBLISHED["rows"], ids=lambda row: "{configuration}-{instance_type}".format(**row)
)
def test_the_least_instances_and_their_price_are_those_of_the_published_rows(row):
    price = PRICES[row["instance_type"]]
    demand = PUBLISHED["demand_a_minute"] / 60
    sizing = size(demand, row["invocations_a_minute"] / 60, price=price, safety_factor=1.0)
    assert sizing.least_instances == row["instances"]
    assert sizing.least_instances * price == pytest.approx(row["usd_an_hour"], abs=0.01)
    assert sizing.instances == row["instances"] + 1


def test_a_million_requests_have_the_price_of_the_instances_or_none():
    sizing = size(100.0, 50.0, price=2.0, safety_factor=0.5)
    assert (sizing.target_per_minute, sizing.usd_an_hour) == (1500, 6.0)
    assert sizing.usd_a_million == pytest.approx(6.0 / 360_000 * 1e6)
    sizing = size(100.0, 50.0, price=None, safety_factor=0.5)
    assert (sizing.usd_an_hour, sizing.usd_a_million, sizing.usd_a_month) == (None, None, None)


@pytest.mark.parametrize(
    ("text", "rate"), [("500", 500), ("30000/min", 500), ("30,000/min", 500), ("1.5/s", 1.5)]
)
def test_a_demand_has_its_time(text, rate):
    assert parse_demand(text) == rate


@pytest.mark.parametrize("text", ["0", "-1", "many", "5/week", "1e9", "99999999999/s", ""])
def test_refuses_a_demand_that_is_none(text):
    with pytest.raises(UsageError, match="--demand"):
        parse_demand(text)
