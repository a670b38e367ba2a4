"""NumPy 2 in the python backend of a Triton before 24.11, which then misreads every tensor."""

from __future__ import annotations

import subprocess

import pytest

from tests.contract.conftest import PYTHON, SERVER, TRITON, end_of
from tests.contract.test_ensemble import write_ensemble
from tests.fixtures.tiny_embedder.archive import write_archive


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The programs of an environment with Triton's packages, but the Python server's NumPy 2."""
    folder = tmp_path_factory.mktemp("numpy") / "venv"
    python = PYTHON["triton-sme"] / "bin" / "python"
    subprocess.run((python, "-m", "venv", "--without-pip", folder), check=True)
    (packages,) = folder.glob("lib/python3*/site-packages")
    theirs, ours = (next(root.glob("lib/python3*/site-packages")) for root in (SERVER, TRITON))
    for name in ("numpy", "numpy.libs"):
        (packages / name).symlink_to(theirs / name)
    (packages / "triton.pth").write_text(f"{ours}\n")
    return folder / "bin"


@pytest.mark.parametrize("write", [write_archive, write_ensemble], ids=lambda write: write.__name__)
def test_refuses_to_serve_under_a_numpy_that_it_misreads(write, programs, tmp_path):
    write(tmp_path / "model")
    path = f"{programs}:/usr/bin:/bin"
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path / "run", PATH=path)
    assert status != 0
    assert "Refused: this Triton's python backend misreads tensors under NumPy 2." in log
