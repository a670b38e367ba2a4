"""A grid as points of a search, the score of a cell, and a search of cells that are computed."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from onboarding.serving_spec import ServingSpec
from roundhouse.compare.cells import Candidate, cells
from roundhouse.compare.comparison import (
    NOTHING,
    require_possible,
    run_comparison,
    run_search,
    score,
    search_grid,
)
from roundhouse.compare.result import State
from roundhouse.errors import RoundhouseError
from roundhouse.report import Report
from tests.unit.roundhouse.compare.test_result import KNEE, cell

CANDIDATE = Candidate(
    is_gpu=True, has_calibration=True, instance_type="ml.g5.xlarge", largest_batch=32
)
AXES = {"max_batch": ["1", "2", "4", "8", "16", "32"], "instances": ["1", "2", "4"]}
GRID = cells(AXES, CANDIDATE)
BATCHING = cells({"batching": ["off", "on"], "max_batch": ["8", "2"]}, CANDIDATE)


class ComputedRun:
    """A run whose cells answer as computed; what is refused by `check` has no measurement."""

    def __init__(self, rate, refused=()):
        self.rate, self.refused = rate, refused
        self.report = Report(console=Console(file=io.StringIO()))
        serving = ServingSpec()
        spec = SimpleNamespace(serving=serving, engine=SimpleNamespace(precision="fp16"))
        endpoint = SimpleNamespace(instance_type="ml.g5.xlarge")
        self.subject = SimpleNamespace(
            name="m", region="us-east-1", spec=spec, endpoint=endpoint, candidate=CANDIDATE
        )
        self.results, self.controls, self.loaded, self.cleaned = {}, [], [], 0

    def row(self, candidate):
        return cell(candidate.name, instance_type="ml.g5.xlarge")

    def prepare(self, group):
        for candidate in group:
            if candidate.name in self.refused:
                self.results[candidate.name] = dataclasses.replace(
                    self.row(candidate), state=State.refused, knee=None, reason="no such batch"
                )
        return [candidate for candidate in group if candidate.name not in self.results]

    def measure_all(self, group, *, has_control):
        for candidate in group:
            self.loaded.append(candidate.name)
            knee = dataclasses.replace(KNEE, rate=self.rate(dict(candidate.values)))
            self.results[candidate.name] = dataclasses.replace(self.row(candidate), knee=knee)
        if has_control:
            self.controls.append("control")

    def clean_up(self):
        self.cleaned += 1


def peak(values):
    return 100.0 - (int(values["max_batch"]) - 8) ** 2 + 10 * int(values["instances"])


def test_a_search_measures_within_its_budget_and_finds_the_best_cell():
    run = ComputedRun(peak)
    done = run_search(run, GRID, 12)
    assert len(run.loaded) == len(set(run.loaded)) == len(done.results) <= 12
    assert max(done.results, key=lambda row: row.rate).name == "batch8-x4"
    assert (done.grid, len(done.controls), run.cleaned) == (len(GRID), 1, 1)
    assert run.loaded[0] == "batch32-x1"


def test_a_search_passes_over_what_check_refuses():
    run = ComputedRun(peak, refused={"batch32-x1", "batch16-x1"})
    done = run_search(run, GRID, 14)
    assert max(done.results, key=lambda row: row.rate or 0).name == "batch8-x4"
    assert {row.state for row in done.results} == {State.measured, State.refused}


def test_refuses_cells_of_which_check_refuses_every_one():
    names = {candidate.name for candidate in GRID}
    for compare in (lambda run: run_search(run, GRID, 4), lambda run: run_comparison(run, GRID)):
        run = ComputedRun(peak, refused=names)
        with pytest.raises(RoundhouseError, match=r"refuses every candidate.*no such batch"):
            compare(run)
        assert run.loaded == []


def test_cells_are_possible_where_check_takes_one_of_them_or_of_the_others():
    names = {candidate.name for candidate in GRID}
    run = ComputedRun(peak, refused=names - {GRID[-1].name})
    run.prepare(GRID)
    require_possible(run, GRID)
    require_possible(run, GRID[:2], others=GRID)
    with pytest.raises(RoundhouseError, match=f"every candidate.*; {GRID[0].name}: no such batch"):
        require_possible(run, GRID[:2])
    with pytest.raises(RoundhouseError, match="every candidate"):
        require_possible(run, GRID[:2], others=GRID[:-1])


def test_points_are_ordered_by_number_and_a_batchless_cell_has_every_largest_batch():
    grid, start = search_grid(BATCHING, {"max_batch": "8", "batching": "on"})
    assert grid.sizes == (2, 2) and grid.is_ordered == (True, True)
    assert grid.names == {
        (0, 0): "single",
        (0, 1): "single",
        (1, 0): "batching-batch2",
        (1, 1): "batching-batch8",
    }
    assert start == (1, 1)


def test_a_start_that_is_no_value_of_an_axis_is_the_first():
    assert search_grid(GRID, {"max_batch": "24", "instances": "2"})[1] == (0, 1)


def test_a_score_is_the_rate_for_a_dollar_and_of_what_misses_the_latency():
    assert score(cell("a", rate=50.0, instance_type="x"), {"x": 2.0}) == (True, 25.0)
    assert score(cell("a", rate=50.0), {}) == (True, 50.0)
    assert score(cell("a", rate=None), {}) == (False, -20.0)
    assert score(cell("a", knee=None), {}) == NOTHING
