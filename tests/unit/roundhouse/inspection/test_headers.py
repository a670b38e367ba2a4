"""Headers are read in parts, from the hub, from S3 and from the tree."""

from __future__ import annotations

import io
import json
import shlex

import pytest
from typer.testing import CliRunner

from onboarding.fault import FaultsError
from onboarding.text_generation.checkpoint import read_headers_file
from onboarding.text_generation.spec import GenerationSourceSpec
from onboarding.tree import read_tree
from roundhouse.cli import app as cli
from roundhouse.errors import NotReadyError, RoundhouseError, UsageError
from roundhouse.inspection.headers import (
    PROGRAM,
    fetch_headers,
    headers_path,
    open_files,
    write_headers,
)
from roundhouse.paths import Paths
from tests.unit.engine_build import places
from tests.unit.onboarding.text_generation.shapes import COMMIT, FIXTURES, generator_tree
from tests.unit.onboarding.text_generation.test_checkpoint import (
    CONFIG,
    TENSORS,
    checkpoint,
    safetensors,
)
from tests.unit.roundhouse.inspection.sources import hub

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
WEIGHTS = b"\x00" * 1_000_000
PICKLED = {
    "own/model.safetensors.index.json": None,
    "own/model-00001-of-00002.safetensors": None,
    "own/model-00002-of-00002.safetensors": None,
    "own/pytorch_model.bin": b"pickle",
}


class Bucket:
    """S3 that gives objects, or parts of them, and counts their bytes."""

    def __init__(self, objects):
        self.objects, self.read = objects, 0

    def get_paginator(self, operation):
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket, Prefix):
        keys = [key for key in sorted(self.objects) if key.startswith(Prefix)]
        return [{"Contents": [{"Key": key}]} for key in keys] or [{}]

    def get_object(self, *, Bucket, Key, Range=None):
        data = self.objects[Key]
        if Range is not None:
            first, last = map(int, Range.removeprefix("bytes=").split("-"))
            data = data[first : last + 1]
        self.read += len(data)
        return {"Body": io.BytesIO(data)}


def _files(folder):
    return {
        path.name: path.read_bytes() + (WEIGHTS if path.suffix == ".safetensors" else b"")
        for path in checkpoint(folder).iterdir()
    }


def test_bucket_gives_headers_without_weights(tmp_path):
    s3 = Bucket({f"own/{name}": data for name, data in _files(tmp_path).items()})
    source = GenerationSourceSpec(checkpoint="s3://bucket/own/", sha256="0" * 64)
    found = fetch_headers(open_files(source, lambda service: s3, {}))
    assert found.config == CONFIG and set(found.tensors) == set(TENSORS)
    assert s3.read < 10_000
    s3 = Bucket({"own/config.json": json.dumps(CONFIG).encode(),
                      "own/model.safetensors": safetensors(TENSORS) + WEIGHTS})  # fmt: skip
    assert set(fetch_headers(open_files(source, lambda service: s3, {})).tensors) == set(TENSORS)


def test_hub_gives_headers_without_weights(tmp_path):
    source = GenerationSourceSpec(huggingface=f"owner/name@{COMMIT}")
    with places.hub(_files(tmp_path), "hf_token", gated=True) as (url, _):
        variables = {"HF_ENDPOINT": url, "HF_TOKEN": "hf_token"}
        found = fetch_headers(open_files(source, lambda service: None, variables))
    assert set(found.tensors) == set(TENSORS)


def test_refuses_a_hub_that_sends_whole_files(tmp_path):
    source = GenerationSourceSpec(huggingface=f"owner/name@{COMMIT}")
    with (
        hub(_files(tmp_path)) as url,
        pytest.raises(NotReadyError, match="no part of a file"),
    ):
        fetch_headers(open_files(source, lambda service: None, {"HF_ENDPOINT": url}))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"own/config.json": None}, "has no config.json"),
        ({"own/config.json": b"{"}, "is no JSON object"),
        ({"own/model-00002-of-00002.safetensors": None}, "00002.safetensors is missing"),
        ({"own/model-00002-of-00002.safetensors": safetensors({})}, "has no tensor"),
        ({"own/model-00002-of-00002.safetensors": b"torch"}, "does not begin as safetensors"),
        (PICKLED, r"keeps weights in pytorch_model.bin, a pickle, which can run code"),
    ],
    ids=["no-config", "json", "shard", "tensor", "torch", "pickle"],
)
def test_refuses_a_checkpoint_that_is_not_whole(change, says, tmp_path):
    objects = {f"own/{name}": data for name, data in _files(tmp_path).items()} | change
    s3 = Bucket({key: data for key, data in objects.items() if data is not None})
    source = GenerationSourceSpec(checkpoint="s3://bucket/own/")
    with pytest.raises(RoundhouseError, match=says):
        fetch_headers(open_files(source, lambda service: s3, {}))


def source_path(root, text=BASE, name="chat"):
    return headers_path(read_tree(generator_tree(root, text)), name)


def test_refuses_a_model_that_is_none(tmp_path):
    with pytest.raises(UsageError, match="there are: chat"):
        source_path(tmp_path, name="example")
    with pytest.raises(FaultsError):
        source_path(tmp_path / "2", BASE.replace("task: text-gen", "tusk: gen"))


@pytest.mark.parametrize("path", ["../8b.json", "/tmp/8b.json"])
def test_refuses_a_headers_file_outside_the_tree(path, tmp_path):
    with pytest.raises(UsageError, match="lies outside the onboarding root"):
        source_path(tmp_path, BASE.replace("models/data/8b.json", path))


def test_command_writes_the_headers_of_a_folder(tmp_path):
    text = BASE.replace(
        "  huggingface: acme/chat@0123456789abcdef0123456789abcdef01234567\n"
        "  headers: models/data/8b.json\n",
        f"  checkpoint: models/data/own\n  sha256: {'a' * 64}\n",
    )
    root = generator_tree(tmp_path, text)
    checkpoint(root / "models/data/own")
    result = CliRunner().invoke(cli.app, ["check", "--fetch-headers", "chat", "--root", str(root)])
    assert "Add `headers: models/data/chat.headers.json` to `source`" in result.output
    found = read_headers_file(root / "models/data/chat.headers.json")
    assert set(found.tensors) == set(TENSORS)


def test_headers_of_a_package_are_a_command_that_the_quantizer_takes(tmp_path):
    text = BASE.replace(
        "  huggingface: acme/chat@0123456789abcdef0123456789abcdef01234567\n",
        "  python_package: a==1\n  path: a\n",
    )
    with pytest.raises(UsageError) as refused:
        write_headers(paths_of(generator_tree(tmp_path, text)), "chat")
    words = shlex.split(str(refused.value).partition("writes the headers: ")[2])
    assert words[:3] == [".venvs/quantizer/bin/python", "-m", PROGRAM]
    given = dict(zip(words[3::2], words[4::2], strict=True))
    source = GenerationSourceSpec.model_validate_json(given["--source"])
    assert (source.python_package, given["--out"]) == ("a==1", "models/data/8b.json")


def paths_of(folder):
    return Paths(code=folder, tree=folder, build=folder / "build")
