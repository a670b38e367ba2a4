"""Both servers' checks of signed archives, against whatever may be changed in one."""

from __future__ import annotations

import functools
import random
import shutil
from pathlib import Path

import pytest

from container.archive import ArchiveRefused, SupportedRuntimes, verify_archive
from container.triton.manifest_check import Refused, refuse_changed_files, refuse_unchecked_files
from container.triton_image import verify_archive as triton
from onboarding.manifest import RuntimeIdentity
from onboarding.signature import SIGNERS_VARIABLE
from tests.fixtures.signer import Signer
from tests.fixtures.tiny_embedder.archive import MODEL, ONNXRUNTIME, write_archive

CPU = SupportedRuntimes(
    pairs=((RuntimeIdentity(name="onnxruntime", version=ONNXRUNTIME), "cpu"),),
)
MUTATIONS = 200


@functools.cache
def signer() -> Signer:
    return Signer()


def python_server(root: Path) -> None:
    verify_archive(root, running=CPU, manifest_sha256=None, signers=(signer().key,))


def triton_image(root: Path) -> None:
    triton.refuse_unsigned_archive(root, signer().public)


SERVERS = pytest.mark.parametrize("check", [python_server, triton_image])


@pytest.fixture(scope="module")
def signed(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("signed") / "model"
    write_archive(root)
    signer().sign_archive(root)
    return root


@pytest.fixture
def archive(signed, tmp_path) -> Path:
    return Path(shutil.copytree(signed, tmp_path / "model"))


def mutate(root: Path, chance: random.Random) -> str:
    """Change one thing of an archive; return what."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    file, other = chance.sample(files, 2)
    data, bit = bytearray(file.read_bytes()), chance.randrange(file.stat().st_size * 8)
    kind = chance.choice(("flip",) * 12 + ("delete", "rename", "add", "cut", "append", "swap"))
    if kind == "flip":
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
    elif kind == "delete":
        file.unlink()
    elif kind == "rename":
        file.rename(file.with_name("renamed"))
    elif kind == "add":
        file.with_name("added.so").write_bytes(b"")
    elif kind == "swap":
        content = other.read_bytes()
        other.write_bytes(data)
        file.write_bytes(content)
    else:
        file.write_bytes(data[:-1] if kind == "cut" else data + b"\0")
    return f"{kind} {file.relative_to(root)} {bit}"


@SERVERS
def test_refuses_every_one_of_200_mutations(check, signed, tmp_path):
    chance = random.Random(1)
    for number in range(MUTATIONS):
        root = Path(shutil.copytree(signed, tmp_path / str(number)))
        changed = mutate(root, chance)
        with pytest.raises((ArchiveRefused, Refused), match=r"^Refused: .*\.$"):
            check(root)
            pytest.fail(changed)
        shutil.rmtree(root)


def test_triton_refuses_links_and_removes_caches(archive, tmp_path):
    cache = archive / MODEL / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-312.pyc").write_bytes(b"x")
    triton_image(archive)
    assert not cache.exists()
    engine = archive / MODEL / "1" / "model.onnx"
    shutil.move(engine, tmp_path / "model.onnx")
    engine.symlink_to(tmp_path / "model.onnx")
    with pytest.raises(Refused, match=r"model\.onnx is neither a file nor a folder"):
        triton_image(archive)
    engine.unlink()
    shutil.move(tmp_path / "model.onnx", engine)
    (archive / MODEL / "2").symlink_to(tmp_path)
    with pytest.raises(Refused, match=f"{MODEL}/2 is neither a file nor a folder"):
        triton_image(archive)


def test_an_archive_refuses_an_image_that_checks_no_signatures(archive, monkeypatch):
    files = triton.read_manifest(archive, None)["files"]
    monkeypatch.setenv(SIGNERS_VARIABLE, signer().public)
    with pytest.raises(Refused, match="its image checks no signatures; push the images"):
        refuse_unchecked_files(archive, files)
    monkeypatch.setenv("ROUNDHOUSE_SIGNATURES_CHECKED", "1")
    refuse_unchecked_files(archive, files)
    with pytest.raises(Refused, match="is not in the archive"):
        refuse_changed_files(archive, files | {"another": "0" * 64})


@pytest.mark.parametrize(
    ("signers", "sentence"),
    [("", "names no key"), ("x", "is not base64"), ("eA==", "is not the DER")],
)
def test_triton_refuses_every_archive_where_a_key_cannot_be_read(signers, sentence, archive):
    with pytest.raises(Refused, match=sentence):
        triton.refuse_unsigned_archive(archive, signers)
