"""Hosts whose count something may change are sampled every minute, however short it is."""

import json
import os
import subprocess

import pytest

from tests.local_cloud.account import ROOT
from tests.local_cloud.conftest import PYTHON

pytestmark = pytest.mark.local_cloud


def test_hosts_of_components_and_scaled_models_are_sampled_every_minute():
    done = subprocess.run(
        (PYTHON, "-m", "tests.local_cloud.host_samples"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "copies of components": 9,
        "a model that nothing scales": 1,
        "a scaled model": 9,
    }
