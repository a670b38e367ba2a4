"""A comparison of cells that are computed."""

from __future__ import annotations

import dataclasses
import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from onboarding.serving_spec import ServingSpec
from roundhouse.compare.cells import Candidate, cells
from roundhouse.compare.comparison import run_comparison
from roundhouse.compare.result import State
from roundhouse.errors import RoundhouseError
from roundhouse.report import Report
from tests.unit.roundhouse.compare.test_result import KNEE, cell

CANDIDATE = Candidate(
    is_gpu=True, has_calibration=True, instance_type="ml.g5.xlarge", largest_batch=32
)
AXES = {"max_batch": ["1", "2", "4", "8", "16", "32"], "instances": ["1", "2", "4"]}
GRID = cells(AXES, CANDIDATE)


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


def test_refuses_cells_of_which_check_refuses_every_one():
    names = {candidate.name for candidate in GRID}
    run = ComputedRun(lambda values: 1.0, refused=names)
    with pytest.raises(RoundhouseError, match=f"every candidate.*; {GRID[0].name}: no such batch"):
        run_comparison(run, GRID)
    assert run.loaded == []


def test_every_other_cell_is_measured_and_one_of_them_again():
    run = ComputedRun(lambda values: 1.0, refused={GRID[0].name})
    done = run_comparison(run, GRID)
    assert [row.name for row in done.results] == [candidate.name for candidate in GRID]
    assert done.results[0].state is State.refused and len(run.loaded) == len(GRID) - 1
    assert (len(done.controls), run.cleaned) == (1, 1)
