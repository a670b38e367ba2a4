"""Servers that refuse to start: archives of others, settings, and a NumPy that Triton misreads.

Signatures are in test_signatures, the Python server's archives with faults in test_faults.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from engine_build.packaging.served import member
from onboarding.manifest import RuntimeIdentity
from tests.contract.conftest import PYTHON, SERVER, TRITON, end_of
from tests.contract.head_archives import write_form
from tests.fixtures.ensembles.archive import ensemble_spec, write_ensemble_archive
from tests.fixtures.tiny_embedder.archive import EMBEDDER, MODEL, SCORER, write_archive

FOREIGN = RuntimeIdentity(name="onnxruntime", version="1.2.3")
CHAIN = "mood"
STEP = f"manifest-{EMBEDDER.model}.json"
ENGINE = f"{member(MODEL, 'engine')}/1/model.onnx"


def write_ensemble(root: Path) -> None:
    """The archive of a text model on a GPU, its plan stood in for."""
    write_form(root, EMBEDDER, "ensemble")


def write_changed_plan(root: Path) -> None:
    write_ensemble(root)
    with (root / ENGINE).open("ab") as file:
        file.write(b"\0")


def write_chain(root: Path) -> None:
    steps = (EMBEDDER, SCORER)
    wired = {"steps": [{"model": step.model} for step in steps], "outputs": ["scores"]}
    write_ensemble_archive(root, ensemble_spec(CHAIN, **wired), steps)


def write_changed_step(root: Path) -> None:
    write_chain(root)
    changed = (root / STEP).read_bytes().replace(b'"max_batch_size": 32', b'"max_batch_size": 33')
    (root / STEP).write_bytes(changed)


def with_fields(**fields: object):
    return lambda root: write_archive(root, **fields)


@pytest.mark.parametrize(
    ("kind", "write", "variables", "sentence"),
    [
        (
            "triton-sme",
            write_archive,
            {"ROUNDHOUSE_MANIFEST_SHA256": "f" * 64},
            f"but the deployment pins {'f' * 64}",
        ),
        (
            "triton-sme",
            with_fields(runtime=FOREIGN),
            {},
            "the engine was made for onnxruntime 1.2.3, this server runs onnxruntime ",
        ),
        (
            "triton-sme",
            with_fields(compute_capability="8.6"),
            {},
            "the engine was made for compute capability 8.6, this server runs cpu",
        ),
        ("triton-sme", write_changed_plan, {}, f"Refused: {ENGINE} has sha256"),
        ("triton-sme", write_changed_step, {"model": CHAIN}, f"Refused: {STEP} has sha256"),
        ("python-server", write_chain, {}, "Refused: the archive holds an ensemble of several"),
        (
            "python-server",
            with_fields(engine_file=f"{MODEL}/1/tokenizer.json"),
            {},
            "cannot be loaded",
        ),
        (
            "python-server",
            write_archive,
            {"ROUNDHOUSE_QUEUE_ROW": "5"},
            "did you mean ROUNDHOUSE_QUEUE_ROWS?",
        ),
        (
            "python-server",
            write_archive,
            {"ROUNDHOUSE_BIND_ADDRESS": "192.0.2.1"},
            "Cannot listen on 192.0.2.1:",
        ),
    ],
)
def test_refuses_to_start(kind, write, variables, sentence, tmp_path):
    write(tmp_path / "model")
    status, log = end_of(kind, tmp_path / "model", tmp_path / "run", **variables)
    assert status != 0 and sentence in log
    if kind == "python-server":
        assert len(log.splitlines()) == 1 and status in (2, 3, 4)


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
def test_refuses_to_serve_under_a_numpy_that_triton_misreads(write, programs, tmp_path):
    write(tmp_path / "model")
    path = f"{programs}:/usr/bin:/bin"
    status, log = end_of("triton-sme", tmp_path / "model", tmp_path / "run", PATH=path)
    assert status != 0
    assert "Refused: this Triton's python backend misreads tensors under NumPy 2." in log
