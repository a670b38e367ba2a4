"""A comparison in the local cloud: what fails is a row, and nothing is left.

Engines are built, endpoints deployed and deleted for real; a load is a few requests.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from roundhouse.measure.compare.tree import MARK
from roundhouse.session import Session
from tests.local_cloud.tiny_session import REPOSITORY, session_at, weighted_network

pytestmark = pytest.mark.local_cloud

COPIED = (
    "app.py",
    "cdk.json",
    "container",
    "engine_build",
    "local_cloud",
    "onboarding",
    "requirements",
    "roundhouse",
    "roundhouse_cdk",
    "stacks",
    "template_rules",
)
LINKED = (".venv", ".venvs", "node_modules")


def copy_repository(place):
    """Copies what runs."""
    for name in COPIED:
        copy = shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copyfile
        copy(REPOSITORY / name, place / name)
    for name in LINKED:
        (place / name).symlink_to(REPOSITORY / name)
    return place


def roundhouse(repository, *words):
    """The command line of the desk's own `roundhouse`."""
    return (str(repository / ".venv" / "bin" / "python"), "-m", "roundhouse", *words)


DRIVER = Path(__file__).with_name("compared.py")
DEADLINE_SECONDS = 300.0
CELLS = ("fp32-x1", "fp32-x2", "int8-x1", "int8-x2")


@dataclass(frozen=True, kw_only=True)
class Compared:
    """A copy of the repository with the tiny model, whose INT8 loses too much to be published."""

    place: Path
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

    @property
    def log(self) -> str:
        """What the comparisons printed."""
        return (self.place / "log").read_text(errors="replace")

    def compare(self, code: int, *precision: str, stop: tuple[int, int] | None = None) -> None:
        """Compare one and two instances in a process group of its own, and expect its exit code.

        `stop`: the load in which the group gets a signal, and the signal.
        """
        axes = {"precision": precision, "instances": ["1", "2"]}
        (self.place / "stop").write_text(str(stop[0] if stop else 0))
        python = self.place / ".venv" / "bin" / "python"
        with (self.place / "log").open("ab") as log:
            process = subprocess.Popen(
                (str(python), str(DRIVER), json.dumps(axes)),
                cwd=self.place,
                env={**os.environ, "PYTHONPATH": f"{self.place}:{REPOSITORY}"},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        try:
            while stop is not None and len(self.loads) < stop[0]:
                assert process.poll() is None and time.monotonic() < deadline, self.log
                time.sleep(0.05)
            if stop is not None:
                os.killpg(process.pid, stop[1])
            assert process.wait(DEADLINE_SECONDS) == code, self.log
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def run(self, *words: str) -> str:
        """Run `roundhouse compare` on the tiny model in the local environment; what it prints."""
        axes = ("--axes", "precision=fp32,int8", "--axes", "instances=1,2", "--slo", "1000")
        argv = (*roundhouse(self.place, "compare", "tiny", "--env", "local"), *axes, *words)
        done = subprocess.run(argv, cwd=self.place, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def compared(tmp_path):
    place = copy_repository(tmp_path)
    with session_at(place) as tiny:
        tiny.write_model(weighted_network(), precision="int8", mean=1.0)
        yield Compared(place=place, session=tiny.start())


def test_a_comparison_leaves_nothing_however_it_ends(compared):
    shown = compared.run("--dry-run")
    assert all(name in shown for name in CELLS) and "build and measure" in shown
    assert "4 cells to measure, at most 1.3 hours" in shown and "the cost is not known" in shown
    stacks = compared.session.clients("cloudformation").list_stacks()["StackSummaries"]
    assert stacks == [] and compared.loads == []

    compared.compare(-signal.SIGKILL, "fp32", stop=(2, signal.SIGKILL))
    first, second = compared.loads
    assert len(compared.endpoints) == 2
    assert "2 endpoints of candidates deleted" in compared.run("--clean")
    assert compared.endpoints == []

    compared.compare(130, "fp32", stop=(3, signal.SIGINT))
    assert compared.endpoints == [] and "the endpoints are deleted now" in compared.log

    compared.compare(0, "fp32", "int8")
    assert set(compared.loads) == {first, second} and compared.endpoints == []
    results = json.loads(compared.log.rpartition("results: ")[2].splitlines()[0])
    states = {name: state for name, (state, _) in results.items()}
    assert states == {name: "measured" if "fp32" in name else "not built" for name in CELLS}
    assert "misses its accuracy budget" in results["int8-x1"][1]

    folder = compared.place / "build" / "compare" / "local" / "tiny"
    document = json.loads((folder / "report.json").read_text())
    assert [row["name"] for row in document["rows"]][2:] == list(CELLS[2:])
    first, second = (row["sizing"] for row in document["rows"][:2])
    assert first["instances"] <= second["instances"]
    assert 0 < first["usd_an_hour"] <= second["usd_an_hour"]
    assert document["headline"] in (folder / "report.md").read_text()
    assert document["headline"] in " ".join(compared.log.split())
