"""A network with its weights in a data file, as those beyond 2 GiB have it, on both servers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from engine_build.onnx_graph.data_file import DATA_NAME
from tests.contract.conftest import rows, serving
from tests.contract.replies import KINDS
from tests.contract.requests import json_request
from tests.fixtures.tiny_embedder.archive import EMBEDDER, REPOSITORY, write_archive, write_manifest

TEXTS = ("the cat sat on the mat", "a dog")
SPLIT = """
import sys
from pathlib import Path
import onnx
from engine_build.onnx_graph.external_data import save_model
path = Path(sys.argv[1])
save_model(onnx.load(path), path, largest=100)
"""


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    """The tiny embedder's archive, every weight of it in the data file."""
    root = tmp_path_factory.mktemp("data") / "model"
    write_archive(root)
    network = root / EMBEDDER.model / "1" / "model.onnx"
    builder = REPOSITORY / ".venvs" / "builder" / "bin" / "python"
    subprocess.run((builder, "-c", SPLIT, network), check=True, cwd=REPOSITORY)
    assert network.with_name(DATA_NAME).stat().st_size > 1000
    write_manifest(root)
    return root


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.endswith("mme")])
def test_network_with_a_data_file_is_served_as_one_file_is(kind, archive, launched, tmp_path):
    expected = rows(launched(kind).ask(json_request(TEXTS)))
    with serving(kind, archive, tmp_path, model=EMBEDDER.model) as server:
        assert np.allclose(rows(server.ask(json_request(TEXTS))), expected, atol=1e-6)
