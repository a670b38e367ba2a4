"""A comparison in the local cloud: what fails is a row, what was measured stays, nothing is left.

Engines are built, endpoints deployed and deleted for real; a load is a few requests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from onboarding.yaml_text import load_yaml
from roundhouse.compare.tree import MARK
from roundhouse.session import Session
from tests.local_cloud.repository_copy import copy_repository, roundhouse
from tests.local_cloud.tiny_session import TinySession, session_at, weighted_network

pytestmark = pytest.mark.local_cloud

DRIVER = Path(__file__).with_name("compared.py")
DEADLINE_SECONDS = 300.0
AXES = {"precision": ["fp32", "int8"], "instances": ["1", "2"]}
BUILT = {"precision": ["fp32"], "instances": ["1", "2"]}
"""Cells whose engines are there once AXES were compared."""
FLAGS = ("--instances", "1,2", "--axes", "precision,instances")
CELLS = ("fp32-x1", "fp32-x2", "int8-x1", "int8-x2")
SEARCHED = {"precision": ["fp32"], "instances": ["1", "2", "3", "4"]}
"""A grid of which BUILT are two cells."""


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A copy of the repository with the tiny model, whose INT8 loses too much to be published."""

    place: Path
    tiny: TinySession
    session: Session

    @property
    def loads(self) -> list[str]:
        """The models that were loaded, in order."""
        path = self.place / "loads"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def endpoints(self) -> list[str]:
        """The candidates' endpoints that stand."""
        shown = self.session.clients("sagemaker").list_endpoints()["Endpoints"]
        return [item["EndpointName"] for item in shown if MARK in item["EndpointName"]]

    def start(self, axes: dict[str, list[str]], *budget: str) -> subprocess.Popen[bytes]:
        """Start a comparison, or a search within a budget, in a process group of its own."""
        python = self.place / ".venv" / "bin" / "python"
        with (self.place / "log").open("ab") as log:
            return subprocess.Popen(
                (str(python), str(DRIVER), json.dumps(axes), *budget),
                cwd=self.place,
                env={**os.environ, "PYTHONPATH": str(self.place)},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def end(self, process: subprocess.Popen[bytes], code: int = 0) -> None:
        """Wait for a process, and expect its exit code."""
        try:
            assert process.wait(DEADLINE_SECONDS) == code, self.log()
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def stop_in_load(
        self, number: int, axes: dict[str, list[str]], signal_number: int, code: int, *budget: str
    ) -> None:
        """Compare, and send a signal to the process group while a load runs."""
        (self.place / "stop").write_text(str(number))
        process = self.start(axes, *budget)
        deadline = time.monotonic() + DEADLINE_SECONDS
        while len(self.loads) < number:
            assert process.poll() is None and time.monotonic() < deadline, self.log()
            time.sleep(0.05)
        os.killpg(process.pid, signal_number)
        (self.place / "stop").unlink()
        self.end(process, code)

    def log(self) -> str:
        """Return what the comparisons printed."""
        return (self.place / "log").read_text(errors="replace")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `roundhouse compare` on the tiny model in the local environment."""
        argv = (*roundhouse(self.place, "compare", "tiny", "--env", "local"), *words)
        return subprocess.run(argv, cwd=self.place, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    place = copy_repository(tmp_path_factory.mktemp("compared"))
    with session_at(place) as tiny:
        tiny.write_model(weighted_network(), precision="int8", mean=1.0)
        yield Compared(place=place, tiny=tiny, session=tiny.start())


def test_a_dry_run_builds_and_deploys_nothing_and_says_what_is_not_known(compared):
    done = compared.run(*FLAGS, "--precision", "fp32,int8", "--slo", "1000", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in CELLS) and "build and measure" in done.stdout
    assert "4 cells to measure, at most 1.3 hours" in done.stdout
    assert "the cost is not known" in done.stdout
    stacks = compared.session.clients("cloudformation").list_stacks()["StackSummaries"]
    assert stacks == [] and compared.loads == []


def test_a_killed_comparison_goes_on_where_it_was_and_leaves_nothing(compared):
    compared.stop_in_load(2, AXES, signal.SIGKILL, -signal.SIGKILL)
    first, second = compared.loads
    assert len(compared.endpoints) == 2
    compared.end(compared.start(AXES))
    # The cell that was finished is not loaded again; the other is, and again as the control.
    assert compared.loads == [first, second, second, second]
    assert "Measured by an earlier run, and kept: 1 of 4 cells" in compared.log()
    assert compared.endpoints == []
    results = json.loads(compared.log().rpartition("results: ")[2].splitlines()[0])
    states = {name: state for name, (state, _) in results.items()}
    assert states == {name: "measured" if "fp32" in name else "not built" for name in CELLS}
    assert "misses its accuracy budget" in results["int8-x1"][1]


def test_a_report_of_what_is_kept_loads_nothing_and_ranks_it(compared):
    loads = len(compared.loads)
    words = ("--precision", "fp32", "--slo", "1000", "--demand", "600/min", "--format", "json")
    done = compared.run(*FLAGS, *words)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {row["name"] for row in document["rows"]} == set(CELLS[:2])
    first, second = (row["sizing"] for row in document["rows"])
    assert first["instances"] <= second["instances"]
    assert document["rows"][0]["sizing"]["usd_an_hour"] is None
    assert len(compared.loads) == loads and compared.endpoints == []
    report = compared.place / "build" / "compare" / "local" / "tiny" / "report.md"
    assert document["headline"] in report.read_text()


def test_a_search_measures_within_its_budget_what_no_comparison_kept(compared):
    before = compared.loads
    compared.end(compared.start(SEARCHED, "3"))
    searched, again = compared.loads[len(before) :]
    assert searched == again and searched not in before, "one new cell, and again as the control"
    assert "Searched: 3 of at most 3 cells" in compared.log() and compared.endpoints == []
    # The command itself goes the same way over what is kept, and loads nothing.
    words = ("--search", "3", "--axes", "precision,instances", "--precision", "fp32")
    counts = ("--instances", ",".join(SEARCHED["instances"]))
    done = compared.run(*words, *counts, "--slo", "1000", "--format", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert {row["name"] for row in document["rows"]} == {"fp32-x1", "fp32-x2", "fp32-x3"}
    assert document["grid"] == 4
    assert len(compared.loads) == len(before) + 2 and compared.endpoints == []


def test_write_puts_a_candidate_into_the_model_file(compared):
    file = compared.place / "models" / "tiny.yaml"
    before = file.read_text()
    try:
        done = compared.run(*FLAGS, "--precision", "fp32", "--write", "fp32-x2")
        assert done.returncode == 0, done.stderr
        written = load_yaml(file.read_text())
        assert (written["engine"]["precision"], written["serving"]["instances_per_gpu"]) == (
            "fp32",
            2,
        )
    finally:
        file.write_text(before)


def test_ctrl_c_in_a_search_deletes_the_endpoints_and_clean_what_a_kill_left(compared):
    (compared.place / "build" / "compare" / "local" / "tiny" / "results").rename(
        compared.place / "kept"
    )
    number = len(compared.loads) + 1
    compared.stop_in_load(number, BUILT, signal.SIGINT, 130, "2")
    assert compared.endpoints == [] and "the endpoints are deleted now" in compared.log()
    compared.stop_in_load(number + 1, BUILT, signal.SIGKILL, -signal.SIGKILL)
    assert len(compared.endpoints) == 2
    done = compared.run("--clean")
    assert (done.returncode, compared.endpoints) == (0, []), done.stderr
    assert "2 endpoints of candidates deleted" in done.stdout
