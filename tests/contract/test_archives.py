"""An archive that is not exactly the one built for this server is refused before serving.

In one sentence, everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from local_cloud.containers.server_client import ServerClient
from onboarding.manifest import RuntimeIdentity
from tests.contract.conftest import exit_status, load, start
from tests.fixtures.tiny_embedder.archive import MODEL, write_archive


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One thing wrong with an archive."""

    name: str
    spoil: Callable[[Path], object]
    sentence: str
    variables: tuple[tuple[str, str], ...] = ()


def _append(root: Path) -> None:
    with (root / MODEL / "1" / "model.onnx").open("ab") as file:
        file.write(b"\0")


def _lose_manifest(root: Path) -> None:
    (root / "manifest.json").unlink()


def _rewrite(**changes: object) -> Callable[[Path], object]:
    def spoil(root: Path) -> None:
        root.rename(root.with_name("first"))
        write_archive(root, **changes)

    return spoil


FAULTS = (
    Fault(name="changed file", spoil=_append, sentence=f"{MODEL}/1/model.onnx has sha256"),
    Fault(name="no manifest", spoil=_lose_manifest, sentence="manifest.json is missing"),
    Fault(
        name="foreign runtime version",
        spoil=_rewrite(runtime=RuntimeIdentity(name="onnxruntime", version="1.2.3")),
        sentence="the engine was made for onnxruntime 1.2.3, this server runs onnxruntime ",
    ),
    Fault(
        name="foreign compute capability",
        spoil=_rewrite(compute_capability="8.6"),
        sentence="the engine was made for compute capability 8.6, this server runs cpu",
    ),
)
PINNED = Fault(
    name="manifest that the deployment does not pin",
    spoil=lambda root: None,
    sentence=f"but the deployment pins {'f' * 64}",
    variables=(("ROUNDHOUSE_MANIFEST_SHA256", "f" * 64),),
)


def _ends_refusing(kind: str, fault: Fault, folder: Path) -> None:
    archive = folder / "model"
    write_archive(archive)
    fault.spoil(archive)
    container = start(kind, archive, folder, **dict(fault.variables))
    try:
        assert exit_status(container) not in (0, None)
    finally:
        container.stop(0)
    said = [
        line
        for line in container.spec.log.read_text().splitlines()
        if "Refused: " in line and fault.sentence in line
    ]
    assert said
    if kind == "python-server":
        assert container.spec.log.read_text().splitlines() == said


@pytest.mark.parametrize(
    "fault", (*FAULTS[::2], PINNED), ids=lambda fault: fault.name.replace(" ", "-")
)
def test_refuses_archive_in_python_server(fault, tmp_path):
    _ends_refusing("python-server", fault, tmp_path)


@pytest.mark.parametrize("fault", (PINNED,), ids=lambda fault: fault.name.replace(" ", "-"))
def test_refuses_archive_in_triton_single_model_mode(fault, tmp_path):
    _ends_refusing("triton-sme", fault, tmp_path)


@pytest.mark.parametrize(
    "fault", (FAULTS[0], *FAULTS[2:]), ids=lambda fault: fault.name.replace(" ", "-")
)
def test_refuses_archive_in_triton_multi_model_mode(fault, tmp_path, launched):
    archive = tmp_path / "model"
    write_archive(archive)
    fault.spoil(archive)
    client: ServerClient = launched("triton-mme").client
    answer = load(client, archive, name="spoiled", target="spoiled/model.tar.gz")
    assert answer.status == 400
    assert fault.sentence in answer.body.decode()
    assert client.request("POST", "/models/spoiled/invoke", b"{}").status == 404
