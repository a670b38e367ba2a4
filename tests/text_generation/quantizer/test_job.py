"""One job: what it publishes, and how it goes on after an end in the middle."""

from __future__ import annotations

import json
import shutil

import pytest

from engine_build.store import FolderStore
from tests.text_generation.quantizer.trees import (
    keys,
    llama_tree,
    read_model,
    record_of,
    run,
    write_model,
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    return llama_tree(tmp_path_factory.mktemp("tree"), schemes=("fp8", "awq", "nvfp4"))


@pytest.fixture(scope="module")
def first(tree, tmp_path_factory):
    """A work folder and a store after one job of FP8."""
    folder = tmp_path_factory.mktemp("first")
    ended = run(tree, folder / "out", "--publish", str(folder / "store"))
    assert ended.code == 0, ended.log
    return folder, ended


def test_files_and_record_are_published_under_the_key(tree, first):
    folder, ended = first
    key = keys(tree)["fp8"]
    assert ended.result["status"] == "built" and ended.result["checkpoint_key"] == key
    entry, store = record_of(folder / "out"), FolderStore(folder / "store")
    assert set(store.names("checkpoints/")) == {
        f"checkpoints/{key}.json", *(f"checkpoints/{key}/{file.path}" for file in entry.files)
    }  # fmt: skip
    assert store.read(f"checkpoints/{key}.json") == entry.record
    steps = [line.split(":")[0] for line in ended.log.splitlines() if not line.startswith(" ")]
    names = list(dict.fromkeys(step.split(" … ")[0] for step in steps))
    assert names == ["fetch", "load", "quantize", "gate", "speed", "publish"]


def test_published_checkpoint_is_not_built_again(tree, first, tmp_path):
    ended = run(tree, tmp_path / "out", "--publish", str(first[0] / "store"))
    assert (ended.code, ended.result["status"]) == (0, "known")
    assert not (tmp_path / "out/checkpoint").exists() and "quantize" not in ended.log


def test_candidate_waits_under_its_own_name(tree, tmp_path):
    store = ("--publish", str(tmp_path / "store"), "--candidate", "try-1")
    ended = run(tree, tmp_path / "out", *store)
    key, entry = keys(tree)["fp8"], record_of(tmp_path / "out")
    assert (ended.code, ended.result["status"]) == (0, "candidate")
    names = FolderStore(tmp_path / "store").names("candidates/")
    assert set(names) == {
        f"candidates/{key}/try-1/checkpoint.json",
        *(f"candidates/{key}/try-1/checkpoint/{file.path}" for file in entry.files),
    }
    assert not FolderStore(tmp_path / "store").names("checkpoints/")


def test_refused_checkpoint_is_recorded_and_its_files_are_not_published(tmp_path):
    root = llama_tree(
        tmp_path / "tree", schemes=("nvfp4",), changes={"budget": {"kl_per_token": 1e-6}}
    )
    store = ("--publish", str(tmp_path / "store"))
    ended = run(root, tmp_path / "out", *store)
    entry = record_of(tmp_path / "out")
    assert ended.code == 0 and not entry.accepted
    assert ended.result["verdict"].startswith("nvfp4 misses its budget: KL per token is ")
    names = FolderStore(tmp_path / "store").names("checkpoints/")
    assert names == (f"checkpoints/{entry.checkpoint_key}.json",)


def test_finished_quantization_is_not_repeated(tree, first, tmp_path):
    """A job that ended after it had quantized, and before its record was written."""
    shutil.copytree(first[0] / "out", tmp_path / "out")
    (tmp_path / "out/checkpoint.json").unlink()
    ended = run(tree, tmp_path / "out", "--publish", str(tmp_path / "store"))
    assert ended.code == 0 and ended.log.count("is there already") == 1
    assert record_of(tmp_path / "out").files == record_of(first[0] / "out").files


def test_half_written_files_are_made_again(tree, first, tmp_path):
    shutil.copytree(first[0] / "out", tmp_path / "out")
    weights = tmp_path / "out/checkpoint/model.safetensors"
    weights.unlink()
    (tmp_path / "out/made.json").unlink()
    ended = run(tree, tmp_path / "out")
    assert ended.code == 0 and weights.is_file()
    assert record_of(tmp_path / "out").files_sha256 == record_of(first[0] / "out").files_sha256


def test_interrupted_upload_leaves_no_record(tree, first, tmp_path):
    store = tmp_path / "store"
    shutil.copytree(first[0] / "out", tmp_path / "out")
    (tmp_path / "store/checkpoints").mkdir(parents=True)
    blocked = store / "checkpoints" / f"{keys(tree)['fp8']}.json"
    blocked.mkdir()
    ended = run(tree, tmp_path / "out", "--publish", str(store))
    assert ended.code == 6 and "cannot be written" in ended.result["reason"]
    blocked.rmdir()
    ended = run(tree, tmp_path / "out", "--publish", str(store))
    assert (ended.code, ended.result["status"]) == (0, "built") and "quantize" not in ended.log


def test_task_score_is_kept_with_its_reference(tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=("int8",))
    items = [{"prompt": f"Say {number}", "answers": ["e"]} for number in range(4)]
    (root / "models/data/task.yaml").write_text(json.dumps({"items": items, "max_tokens": 8}))
    spec = read_model(root)
    spec["quantization"]["budget"]["task"] = {"file": "models/data/task.yaml", "drop": 1.0}
    write_model(root, spec)
    assert run(root, tmp_path / "out").code == 0
    task = record_of(tmp_path / "out").gate.task
    assert task.file == "models/data/task.yaml" and 0 <= task.reference <= 1
    assert task.drop.value == pytest.approx(task.reference - task.value)
