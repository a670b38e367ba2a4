"""The program `train` runs the entry file of our builder images."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit
ROOT = Path(__file__).parents[5]
TRAIN = ROOT / "local_cloud" / "sagemaker" / "training" / "train.py"
ENTRY = ROOT / "engine_build" / "training_job.py"


def test_refusal_of_the_entry_is_left_as_the_failure(tmp_path):
    (tmp_path / "output").mkdir()
    paths = ("--ml", tmp_path, "--tree", tmp_path / "source")
    command = [sys.executable, "-I", TRAIN, ENTRY, *paths]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "hyperparameters.json cannot be read" in (tmp_path / "output" / "failure").read_text()
