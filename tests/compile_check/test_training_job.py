"""One whole build as a training job: the entry's file alone, and a zip of `roundhouse build`."""

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
from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.test_training_job import ENTRY
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check


@pytest.fixture
def paths(tmp_path):
    job = JobPaths(ml=tmp_path / "ml", tree=tmp_path / "source")
    job.source.mkdir(parents=True)
    tree = write_tree(tmp_path / "tree", model("tiny", "fp32"))
    (job.source / "0123.zip").write_bytes(source_zip(ROOT, tree))
    return job


def run(paths, wheel, **hyperparameter_values):
    """The job's process, as the image starts it: nothing of this repository on its path."""
    values = {"environment": "desk", "model": "tiny", **hyperparameter_values}
    paths.hyperparameters.parent.mkdir(parents=True, exist_ok=True)
    paths.hyperparameters.write_text(json.dumps(values))
    entry = shutil.copy(training_job.__file__, paths.ml.parent)
    command = (sys.executable, "-I", "-c", ENTRY, entry, str(paths.ml), str(paths.tree))
    environment = {
        "PATH": os.environ["PATH"],
        "PIP_FIND_LINKS": str(wheel.parent),
        "ROUNDHOUSE_BENCHMARK_SECONDS": "0.2",
    }
    return subprocess.run(
        command, cwd="/", env=environment, capture_output=True, text=True, check=False
    )


def test_training_job_builds_and_publishes(paths, wheel, tmp_path):
    store = tmp_path / "store"
    ended = run(paths, wheel, publish=str(store), commit="c0ffee", image="gpu@1")
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    entry = json.loads((store / f"engines/{result['engine_key']}/lock-entry.json").read_bytes())
    archive, builder = entry["archive"], entry["manifest"]["builder"]
    assert (result["status"], result["archive"]["sha256"]) == ("built", archive["sha256"])
    assert (builder["source_commit"], builder["image"]) == ("c0ffee", "gpu@1")
    assert json.loads((paths.data / "result.json").read_text()) == result
    assert "pip download" in (paths.data / "reproduce.sh").read_text()
    assert "compile" in (paths.data / "build.log").read_text() and not paths.failure.exists()


def test_refuses_in_the_words_of_the_build(paths, wheel, tmp_path):
    ended = run(paths, wheel, model="tinny", publish=str(tmp_path / "store"))
    failure = paths.failure.read_text()
    assert ended.returncode == 1
    assert "unknown model" in failure and "did you mean 'tiny'?" in failure
