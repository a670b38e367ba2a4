"""With trusted signers, every server loads what one of them signed and nothing else.

Triton's check is its image's: an archive whose own code lies is refused before that code runs.
"""

from __future__ import annotations

import os
import py_compile
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from onboarding.signature import ENVELOPE_NAME, SIGNERS_VARIABLE
from tests.contract.conftest import Served, end_of, load, rows, serving
from tests.contract.replies import KINDS, is_multi_model
from tests.contract.requests import json_request
from tests.contract.server_process import until
from tests.fixtures.signer import Signer
from tests.fixtures.tiny_embedder.archive import MODEL, write_manifest

SINGLE = tuple(kind for kind in KINDS if not is_multi_model(kind))
SEVERAL = tuple(kind for kind in KINDS if is_multi_model(kind))
VERSION = Path(MODEL) / "1"
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc, as Triton's image")


class Fault(NamedTuple):
    """One thing wrong with a signed archive."""

    name: str
    sentence: str
    spoil: Callable[[Path], object]


def _cache(root: Path) -> None:
    """A cache that the interpreter takes whatever the code beside it says."""
    marker, cache = root.with_name(f"{root.name}-ran"), root / VERSION / "__pycache__"
    other = root.with_name("other.py")
    other.write_text(f"open({str(marker)!r}, 'w').close()\n")
    mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for name in ("model", "manifest_check"):
        py_compile.compile(
            str(other), str(cache / f"{name}.cpython-311.pyc"), invalidation_mode=mode
        )


def _forge(root: Path) -> None:
    """Code that checks nothing, and a manifest that names it; the signature is a true one."""
    marker = root.with_name(f"{root.name}-ran")
    (root / VERSION / "model.py").write_text(f"open({str(marker)!r}, 'w').close()\n")
    envelope = (root / ENVELOPE_NAME).read_bytes()
    (root / ENVELOPE_NAME).unlink()
    write_manifest(root)
    (root / ENVELOPE_NAME).write_bytes(envelope)


FAULTS = (
    Fault(
        "unsigned", "manifest.dsse.json is missing", lambda root: (root / ENVELOPE_NAME).unlink()
    ),
    Fault(
        "other signer", "none of the 2 trusted signers", lambda root: Signer().sign_archive(root)
    ),
    Fault("forged code", "it signs a manifest.json of sha256", _forge),
)


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


@pytest.fixture(scope="module")
def variables(signer) -> dict[str, str]:
    """Two keys, of which the second signed."""
    return {SIGNERS_VARIABLE: f"{Signer().public} {signer.public}"}


@pytest.fixture(scope="module")
def signed(signer, archive, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("signed") / "model"
    shutil.copytree(archive, root)
    signer.sign_archive(root)
    return root


@pytest.fixture(scope="module", params=KINDS)
def guarded(request, signed, variables, tmp_path_factory) -> Iterator[Served]:
    """Each server with trusted signers and the signed archive."""
    folder = tmp_path_factory.mktemp("guarded")
    with serving(request.param, signed, folder, **variables) as one:
        yield one


def _spoiled(signed: Path, folder: Path, fault: Fault) -> Path:
    root = folder / fault.name.replace(" ", "-")
    shutil.copytree(signed, root)
    fault.spoil(root)
    return root


def test_answers_with_an_engine_of_a_trusted_signer(guarded):
    assert rows(guarded.ask(json_request(("the cat sat",)))).shape == (1, 16)


@pytest.mark.parametrize("guarded", SEVERAL, indirect=True)
def test_refuses_to_load_what_nobody_trusted_signed(guarded, signed, tmp_path):
    for fault in FAULTS:
        root = _spoiled(signed, tmp_path, fault)
        answer = load(guarded.client, root, name=root.name, target=f"{root.name}/model.tar.gz")
        assert answer.status == 400, (fault.name, answer.body)
        assert "Refused: " in answer.body.decode() and fault.sentence in answer.body.decode()
        assert guarded.client.request("POST", f"/models/{root.name}/invoke", b"{}").status == 404
        assert not root.with_name(f"{root.name}-ran").exists()
    assert rows(guarded.ask(json_request(("the cat sat",)))).shape == (1, 16)


@pytest.mark.parametrize("guarded", SEVERAL, indirect=True)
def test_runs_no_cache_that_came_with_an_archive(guarded, signed, tmp_path):
    root = _spoiled(signed, tmp_path, Fault("cached", "", _cache))
    answer = load(guarded.client, root, name="cached", target="cached/model.tar.gz")
    assert answer.status == 200, answer.body
    assert not root.with_name("cached-ran").exists()


@pytest.mark.parametrize("guarded", ["triton-mme"], indirect=True)
def test_a_check_that_was_killed_is_started_again(guarded, signed, variables, tmp_path):
    for number, folder in enumerate((tmp_path / "first", tmp_path / "second")):
        (checker,) = _checkers(variables[SIGNERS_VARIABLE])
        os.kill(checker, signal.SIGKILL)
        until(lambda process=checker: not _is_running(process), "the end of the check")
        root = Path(shutil.copytree(signed, folder / "model"))
        unsigned = bool(number)
        if unsigned:
            (root / ENVELOPE_NAME).unlink()
        name = f"killed-{number}"
        answer = load(guarded.client, root, name=name, target=f"{name}/model.tar.gz")
        assert answer.status == (400 if unsigned else 200), answer.body


def _checkers(signers: str) -> list[int]:
    """The processes that check for servers with these keys."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            is_check = b"verify_archive.py" in (folder / "cmdline").read_bytes()
            if is_check and signers.encode() in (folder / "environ").read_bytes():
                found.append(int(folder.name))
    return found


def _is_running(process: int) -> bool:
    try:
        return "(zombie)" not in Path(f"/proc/{process}/status").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("kind", SINGLE)
@pytest.mark.parametrize("fault", (FAULTS[0], FAULTS[-1]), ids=("unsigned", "forged-code"))
def test_refuses_to_start_with_what_nobody_trusted_signed(kind, fault, signed, variables, tmp_path):
    root = _spoiled(signed, tmp_path, fault)
    status, log = end_of(kind, root, tmp_path / "server", **variables)
    refusals = [line for line in log.splitlines() if "Refused: " in line]
    assert status != 0 and len(refusals) == 1 and fault.sentence in refusals[0]
    assert not root.with_name(f"{root.name}-ran").exists()
