"""What a server does with an archive that is not exactly the one that was built for it: one sentence and no engine."""

from __future__ import annotations

import json

import pytest

from container.archive import ArchiveRefused, verified_archive
from onboarding.manifest import RuntimeIdentity
from tests.fixtures.tiny_embedder.archive import MODEL, ONNXRUNTIME, write_archive

RUNTIME = RuntimeIdentity(name="onnxruntime", version=ONNXRUNTIME)


def verified(root, *, sha256=None):
    return verified_archive(root, runtime=RUNTIME, compute_capability="cpu", manifest_sha256=sha256)


def test_archive_is_taken_when_the_whole_chain_holds(tmp_path):
    manifest = write_archive(tmp_path)
    archive = verified(tmp_path, sha256=manifest.sha256())
    assert archive.manifest == manifest
    assert archive.engine.is_file()
    assert archive.tokenizer is not None and archive.tokenizer.is_file()


def test_archive_is_taken_with_python_caches_beside_the_model(tmp_path):
    write_archive(tmp_path)
    cache = tmp_path / MODEL / "1" / "__pycache__"
    cache.mkdir()
    (cache / "model.cpython-311.pyc").write_bytes(b"x")
    assert verified(tmp_path).manifest.model == MODEL


def test_refuses_archive_without_manifest(tmp_path):
    write_archive(tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(ArchiveRefused, match=r"manifest\.json is missing"):
        verified(tmp_path)


def test_refuses_manifest_that_the_deployment_does_not_pin(tmp_path):
    write_archive(tmp_path)
    with pytest.raises(ArchiveRefused, match=f"the deployment pins {'f' * 64}"):
        verified(tmp_path, sha256="f" * 64)


@pytest.mark.parametrize("text", ["", "[]", "{}", "{", "\xff"])
def test_refuses_manifest_that_cannot_be_read(tmp_path, text):
    write_archive(tmp_path)
    (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
    with pytest.raises(ArchiveRefused, match=r"manifest\.json cannot be read"):
        verified(tmp_path)


def test_refuses_manifest_with_an_unknown_field(tmp_path):
    manifest = json.loads(write_archive(tmp_path).to_bytes())
    (tmp_path / "manifest.json").write_text(json.dumps(manifest | {"extra": 1}))
    with pytest.raises(ArchiveRefused, match="extra"):
        verified(tmp_path)


def test_refuses_changed_file(tmp_path):
    write_archive(tmp_path)
    with (tmp_path / MODEL / "1" / "model.onnx").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(ArchiveRefused, match=r"1/model\.onnx has sha256 .* publish the archive again"):
        verified(tmp_path)


def test_refuses_missing_file(tmp_path):
    write_archive(tmp_path)
    (tmp_path / MODEL / "1" / "tokenizer.json").unlink()
    with pytest.raises(ArchiveRefused, match=r"1/tokenizer\.json is named in manifest\.json but is not in the archive"):
        verified(tmp_path)


def test_refuses_added_file(tmp_path):
    write_archive(tmp_path)
    (tmp_path / MODEL / "1" / "libevil.so").write_bytes(b"x")
    with pytest.raises(ArchiveRefused, match=r"libevil\.so is in the archive but not named"):
        verified(tmp_path)


@pytest.mark.parametrize(
    "runtime", [RuntimeIdentity(name="onnxruntime", version="1.30.0"), RuntimeIdentity(name="tensorrt", version="10.16.1.11")]
)
def test_refuses_foreign_runtime(tmp_path, runtime):
    write_archive(tmp_path, runtime=runtime)
    with pytest.raises(ArchiveRefused, match=rf"made for {runtime.name} {runtime.version}, this server runs onnxruntime"):
        verified(tmp_path)


def test_refuses_foreign_compute_capability(tmp_path):
    write_archive(tmp_path, compute_capability="8.6")
    with pytest.raises(ArchiveRefused, match=r"compute capability 8\.6, this server runs cpu"):
        verified(tmp_path)
