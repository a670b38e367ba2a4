"""An archive that is not exactly the one built for this server is refused before serving.

In one sentence, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from onboarding.manifest import RuntimeIdentity
from tests.contract.conftest import end_of, load
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive


class Fault(NamedTuple):
    """One thing wrong with an archive."""

    name: str
    sentence: str
    spoil: Callable[[Path], object]
    variables: tuple[tuple[str, str], ...] = ()


def _append(root: Path) -> None:
    with (root / MODEL / "1" / "model.onnx").open("ab") as file:
        file.write(b"\0")


def _rewrite(**changes: object) -> Callable[[Path], object]:
    def spoil(root: Path) -> None:
        root.rename(root.with_name("first"))
        write_archive(root, **changes)

    return spoil


CHANGED = Fault("changed file", f"{MODEL}/1/model.onnx has sha256", _append)
RUNTIME = Fault(
    "foreign runtime version",
    "the engine was made for onnxruntime 1.2.3, this server runs onnxruntime ",
    _rewrite(runtime=RuntimeIdentity(name="onnxruntime", version="1.2.3")),
)
CAPABILITY = Fault(
    "foreign compute capability",
    "the engine was made for compute capability 8.6, this server runs cpu",
    _rewrite(compute_capability="8.6"),
)
PINNED = Fault(
    "manifest that the deployment does not pin",
    f"but the deployment pins {'f' * 64}",
    lambda root: None,
    (("ROUNDHOUSE_MANIFEST_SHA256", "f" * 64),),
)


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        ("python-server", CHANGED),
        ("python-server", RUNTIME),
        ("python-server", PINNED),
        ("triton-sme", PINNED),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_refuses_archive_in_single_model_mode(kind, fault, tmp_path):
    archive = tmp_path / "model"
    write_archive(archive)
    fault.spoil(archive)
    status, log = end_of(kind, archive, tmp_path, **dict(fault.variables))
    lines = log.splitlines()
    refusals = [line for line in lines if "Refused: " in line and fault.sentence in line]
    assert status != 0 and refusals
    if kind == "python-server":
        assert lines == refusals


@pytest.mark.parametrize(
    "fault", (CHANGED, RUNTIME, CAPABILITY), ids=lambda fault: fault.name.replace(" ", "-")
)
def test_refuses_archive_in_triton_multi_model_mode(fault, tmp_path, launched):
    archive = tmp_path / "model"
    write_archive(archive)
    fault.spoil(archive)
    client = launched("triton-mme").client
    answer = load(client, archive, name="spoiled", target="spoiled/model.tar.gz")
    assert answer.status == 400
    assert fault.sentence in answer.body.decode()
    assert client.request("POST", "/models/spoiled/invoke", b"{}").status == 404
