"""PyTorch programs in the Python server, as they are and compiled, answer as their source."""

from __future__ import annotations

import json
import subprocess

import numpy as np
import pytest

from tests.contract.conftest import BASELINE, end_of, rows, serving
from tests.contract.requests import json_request
from tests.fixtures.tiny_embedder.archive import REPOSITORY

BUILDER = REPOSITORY / ".venvs" / "builder" / "bin" / "python"
RUNTIMES = ("pytorch", "pytorch-compile")
ABSOLUTE = 1e-4
"""Of FP32 engines against the source."""
pytestmark = pytest.mark.skipif(not BUILDER.exists(), reason=f"needs {BUILDER}")


@pytest.fixture(scope="module")
def baselines(tmp_path_factory):
    """A folder with the archive of each runtime, and the source's answers."""
    root = tmp_path_factory.mktemp("baselines")
    argv = [str(BUILDER), "-m", "tests.contract.baseline_archives", str(root)]
    ended = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return root


@pytest.fixture(scope="module", params=RUNTIMES)
def server(request, baselines, tmp_path_factory):
    """The image with torch, which serves one of them in two slots."""
    folder = tmp_path_factory.mktemp(request.param)
    archive = baselines / request.param
    extra = {"ROUNDHOUSE_SLOTS": "2", "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor")}
    # No pool of compilers that each import torch, and no trial of the processor's vectors.
    extra |= {"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_VEC_ISA_OK": "0"}
    with serving(BASELINE, archive, folder / "server", model="tiny", **extra) as served:
        yield served


@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_answers_are_the_sources(server, baselines, count):
    texts = json.loads((baselines / "texts.json").read_text())
    expected = np.load(baselines / "vectors.npy")
    vectors = rows(server.ask(json_request(texts[:count])))
    assert vectors.shape == expected[:count].shape
    assert np.abs(vectors - expected[:count]).max() < ABSOLUTE


def test_refuses_a_program_where_torch_is_missing_in_one_sentence(baselines, tmp_path):
    status, log = end_of("python-server", baselines / "pytorch", tmp_path)
    assert status == 3
    assert log.count("\n") == 1
    assert "made for pytorch 2.13.0" in log
    assert "(this Python has no torch)" in log
