"""One whole build as a training job.

The entry's file alone, and a zip as `roundhouse build` makes it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

from engine_build import training_job
from engine_build.training_job import JobPaths
from roundhouse.deploy.builds.source import source_zip
from tests.unit.engine_build.test_training_job import ENTRY
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check


def run(places, wheel, **hyperparameter_values):
    """The job's process, as the image starts it: nothing of this repository on its path."""
    places.hyperparameters.parent.mkdir(parents=True, exist_ok=True)
    places.hyperparameters.write_text(json.dumps(hyperparameter_values))
    entry = shutil.copy(training_job.__file__, places.ml.parent)
    command = (sys.executable, "-I", "-c", ENTRY, entry, str(places.ml), str(places.tree))
    environment = {
        "PATH": os.environ["PATH"],
        "PIP_FIND_LINKS": str(wheel.parent),
        "ROUNDHOUSE_BENCHMARK_SECONDS": "0.2",
    }
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False
    )


@pytest.fixture
def places(tmp_path):
    from tests.unit.engine_build.stand_ins import ROOT

    found = JobPaths(ml=tmp_path / "ml", tree=tmp_path / "source")
    found.source.mkdir(parents=True)
    tree = write_tree(tmp_path / "tree", model("tiny", "fp32"))
    (found.source / "0123.zip").write_bytes(source_zip(ROOT, tree))
    return found


def test_training_job_builds_and_publishes(places, wheel, tmp_path):
    ended = run(
        places,
        wheel,
        environment="desk",
        model="tiny",
        publish=str(tmp_path / "store"),
        commit="c0ffee",
        image="gpu@1",
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    entry = json.loads(
        (tmp_path / f"store/engines/{said['engine_key']}/lock-entry.json").read_bytes()
    )
    assert (said["status"], entry["archive"]["sha256"]) == ("built", said["archive"]["sha256"])
    assert (
        entry["manifest"]["builder"]["source_commit"],
        entry["manifest"]["builder"]["image"],
    ) == ("c0ffee", "gpu@1")
    assert json.loads((places.data / "result.json").read_text()) == said
    assert "pip download" in (places.data / "reproduce.sh").read_text()
    assert "compile" in (places.data / "build.log").read_text() and not places.failure.exists()


def test_refuses_in_the_words_of_the_build(places, wheel, tmp_path):
    ended = run(places, wheel, environment="desk", model="tinny", publish=str(tmp_path / "store"))
    assert ended.returncode == 1
    assert (
        "unknown model" in places.failure.read_text()
        and "did you mean 'tiny'?" in places.failure.read_text()
    )
