"""A whole build of a tiny model, with processes stood in for."""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import tarfile

import numpy as np
import pytest

from engine_build.build import build
from engine_build.datasets.text import TextEncoder
from engine_build.errors import BudgetMissed, InputRefused, NetworkRefused, SourceFault
from engine_build.evaluation.answers import rows_in_order
from engine_build.log import Log
from engine_build.ort import OrtNetwork
from engine_build.pipeline import step_names
from engine_build.runner import Ended
from engine_build.sources.source_model import SourceModel
from engine_build.store import FolderStore, sha256_of
from onboarding.checkpoint import checkpoint_sha256
from onboarding.lock import LockEntry
from onboarding.names import engine_archive_path, engine_record_path
from tests.unit.engine_build.stand_ins import BreakingStore, StandInRunner, context
from tests.unit.engine_build.tiny import WIDTH, model, sentences, write_tree


def run(root, out, *, store, runner, model="tiny"):
    tools = context(root, out, store=store, runner=runner, model=model)
    with tools.work:
        return build(tools)


def test_build_publishes_an_archive_whose_record_names_its_digest(built):
    entry = built.result.entry
    archive = built.store / entry.archive.path
    assert entry.archive.path == engine_archive_path(entry.manifest.engine_key)
    assert sha256_of(archive) == entry.archive.sha256
    assert archive.stat().st_size == entry.archive.size_bytes
    record = (built.store / engine_record_path(entry.manifest.engine_key)).read_bytes()
    assert LockEntry.model_validate_json(record) == entry


def test_archive_holds_the_manifest_beside_one_model_folder(built, tmp_path):
    manifest = built.result.entry.manifest
    with tarfile.open(built.store / built.result.entry.archive.path) as tar:
        tar.extractall(tmp_path, filter="data")
    found = {
        path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert found == {"manifest.json", *manifest.files}
    assert set(manifest.files) == {
        f"tiny/{name}"
        for name in (
            "config.pbtxt",
            "1/model.py",
            "1/manifest_check.py",
            "1/model.onnx",
            "1/tokenizer.json",
        )
    }
    assert all(sha256_of(tmp_path / name) == digest for name, digest in manifest.files.items())
    assert (tmp_path / "manifest.json").read_bytes() == manifest.to_bytes()
    assert f"dims: [ {WIDTH} ]" in (tmp_path / "tiny/config.pbtxt").read_text()


def test_published_engine_answers_as_the_source_model_does(built, checkpoint, tmp_path):
    with tarfile.open(built.store / built.result.entry.archive.path) as tar:
        tar.extractall(tmp_path, filter="data")
    source, texts = SourceModel(checkpoint, longest=16), sentences(40, seed=5)
    encoder = TextEncoder(tmp_path / "tiny/1/tokenizer.json", inputs=source.inputs, longest=16)
    found = rows_in_order(OrtNetwork(tmp_path / "tiny/1/model.onnx").rows, encoder, texts, 4)
    assert (found * rows_in_order(source.rows, encoder, texts, 8)).sum(axis=1).min() > 0.95


def test_manifest_records_what_was_judged_and_measured(built):
    manifest = built.result.entry.manifest
    assert manifest.accuracy[0].subject == "int8 Q/DQ network"
    assert manifest.accuracy[-1].subject == f"{manifest.precision} engine"
    assert {record.verdict for record in manifest.accuracy} == {"pass"}
    assert {check.network for check in manifest.compile_checks} == {"float", "int8"}
    measured = {(record.runtime, record.precision) for record in manifest.benchmark}
    control = ("onnxruntime", "fp32 (duplicate control)")
    assert measured >= {
        ("onnxruntime", "fp32"),
        ("onnxruntime", "int8"),
        ("onnxruntime", "int8 Q/DQ network"),
        control,
        ("pytorch", "fp32"),
    }
    assert {(record.batch, record.sequence) for record in manifest.benchmark} == {
        (1, 4),
        (2, 8),
        (4, 16),
    }
    assert manifest.decision.startswith(f"{manifest.precision}: int8 ")
    assert (manifest.builder.source_commit, manifest.builder.image) == ("abc", "image@sha256:1")


def test_known_key_builds_nothing(built, tmp_path):
    runner = StandInRunner()
    result = run(built.root, tmp_path, store=FolderStore(built.store), runner=runner)
    assert (result.status, result.entry) == ("known", built.result.entry)
    assert runner.commands == []


@pytest.mark.parametrize("name", ["tiny-fp32", "tiny-int8"])
def test_networks_of_one_source_are_made_once(built, tmp_path, name):
    store = shutil.copytree(built.store, tmp_path / "store")
    runner = StandInRunner()
    result = run(built.root, tmp_path / "out", store=FolderStore(store), runner=runner, model=name)
    assert result.entry.manifest.precision == name.removeprefix("tiny-")
    assert runner.ran("pip") == 0


def test_model_that_refuses_long_texts_is_another_engine_of_the_same_networks(built, tmp_path):
    store = shutil.copytree(built.store, tmp_path / "store")
    root = write_tree(
        tmp_path / "root", model("tiny-fp32", "fp32", serving={"auto_truncate": False})
    )
    runner = StandInRunner()
    result = run(root, tmp_path / "out", store=FolderStore(store), runner=runner, model="tiny-fp32")
    manifest = result.entry.manifest
    assert (result.status, runner.ran("pip"), manifest.auto_truncate) == ("built", 0, False)
    assert (
        manifest.files["tiny-fp32/1/model.py"]
        == built.result.entry.manifest.files["tiny/1/model.py"]
    )
    known = run(
        built.root,
        tmp_path / "cuts",
        store=FolderStore(store),
        runner=StandInRunner(),
        model="tiny-fp32",
    ).entry.manifest
    assert known.auto_truncate and known.engine_key != manifest.engine_key
    assert known.network_keys == manifest.network_keys


def test_damaged_network_in_the_store_is_made_anew(built, wheel, tmp_path):
    store = shutil.copytree(built.store, tmp_path / "store")
    for path in store.glob("networks/*/*-model.onnx"):
        path.write_bytes(path.read_bytes()[:-10])
    runner = StandInRunner(wheel)
    run(built.root, tmp_path / "out", store=FolderStore(store), runner=runner, model="tiny-fp32")
    assert runner.ran("pip") == 1


def test_build_killed_before_the_end_goes_on_from_what_is_finished(built, wheel, tmp_path):
    tools = context(
        built.root,
        tmp_path,
        store=None,
        runner=StandInRunner(wheel, check=Ended(code=-9, output="", errors="")),
    )
    with pytest.raises(NetworkRefused), tools.work:
        build(tools)
    (tmp_path / "scratch/engines").mkdir(parents=True)
    again = StandInRunner()
    assert run(built.root, tmp_path, store=None, runner=again).status == "built"
    assert again.ran("pip") == 0
    assert not (tmp_path / "scratch").exists()


def test_engine_is_invisible_until_its_record_is_written(built, wheel, tmp_path):
    store = BreakingStore(
        tmp_path / "store", lambda name: name.endswith("lock-entry.json"), KeyboardInterrupt()
    )
    store_before = shutil.copytree(built.store / "networks", tmp_path / "store/networks")
    with pytest.raises(KeyboardInterrupt):
        run(built.root, tmp_path / "out", store=store, runner=StandInRunner())
    key = built.result.entry.manifest.engine_key
    assert store_before.exists() and (tmp_path / "store" / engine_archive_path(key)).exists()
    assert not (tmp_path / "store" / engine_record_path(key)).exists()
    runner = StandInRunner()
    result = run(built.root, tmp_path / "out", store=FolderStore(tmp_path / "store"), runner=runner)
    assert runner.commands == []
    assert (
        LockEntry.model_validate_json((tmp_path / "store" / engine_record_path(key)).read_bytes())
        == result.entry
    )


def test_refuses_an_engine_outside_its_budget_and_publishes_nothing(built, tmp_path):
    store = shutil.copytree(built.store / "networks", tmp_path / "store/networks").parent
    strict = {"dataset": "models/data/validation.txt", "metric": "cosine", "budget": {"mean": 1.0}}
    root = write_tree(tmp_path / "root", model("tiny", "int8", accuracy=strict))
    with pytest.raises(
        BudgetMissed, match=r"the closest, int8, has mean cosine [01]\.\d+ .*wanted mean 1;"
    ):
        run(root, tmp_path / "out", store=FolderStore(store), runner=StandInRunner())
    assert not (store / "engines").exists()


def test_auto_falls_back_to_fp32_outside_the_budget(built, tmp_path):
    store = shutil.copytree(built.store / "networks", tmp_path / "store/networks").parent
    strict = {
        "dataset": "models/data/validation.txt",
        "metric": "cosine",
        "budget": {"mean": 0.999999},
    }
    root = write_tree(tmp_path / "root", model(accuracy=strict))
    result = run(root, tmp_path / "out", store=FolderStore(store), runner=StandInRunner())
    assert result.entry.manifest.precision == "fp32"
    assert "outside the budget" in result.entry.manifest.decision


def test_compile_check_that_passed_is_kept_with_its_network(built, tmp_path):
    store = shutil.copytree(built.store / "networks", tmp_path / "store/networks").parent
    assert len(list(store.glob("networks/*/check-*.json"))) == 2
    runner = StandInRunner(check=Ended(code=-6, output="", errors="must not run"))
    result = run(built.root, tmp_path / "out", store=FolderStore(store), runner=runner)
    assert result.entry.manifest.compile_checks == built.result.entry.manifest.compile_checks


def test_check_of_another_file_is_made_again(built, tmp_path):
    store = shutil.copytree(built.store / "networks", tmp_path / "store/networks").parent
    record = next(store.glob("networks/*/check-*.json"))
    record.rename(record.with_name("check-0123456789abcdef.json"))
    runner = StandInRunner()
    run(built.root, tmp_path / "out", store=FolderStore(store), runner=runner)
    assert runner.ran("engine_build.onnx_graph.rtx") == 1


def test_refuses_a_network_that_the_compile_check_refuses(built, tmp_path):
    unchecked = shutil.ignore_patterns("check-*.json")
    store = shutil.copytree(
        built.store / "networks", tmp_path / "store/networks", ignore=unchecked
    ).parent
    fault = {"message": "no importer", "node": -1, "name": "/x", "operator": "Foo"}
    said = json.dumps({"version": "1.7", "verdict": "fail", "seconds": 0.1, "faults": [fault]})
    runner = StandInRunner(check=Ended(code=0, output=said, errors=""))
    with pytest.raises(
        NetworkRefused, match=r"float network: node /x \(operator Foo\): no importer; way out: "
    ):
        run(built.root, tmp_path / "out", store=FolderStore(store), runner=runner)


def test_refuses_a_package_that_cannot_be_fetched(built, tmp_path):
    with pytest.raises(
        SourceFault, match=r"tiny-embedder==1.0 cannot be fetched \(ERROR: No matching distribution"
    ):
        run(built.root, tmp_path, store=None, runner=StandInRunner())


def gpu_root(tmp_path):
    root = write_tree(
        tmp_path / "root", model("tiny", "auto", endpoint={"instance_type": "ml.g5.xlarge"})
    )
    environment = root / "environments/desk.yaml"
    environment.write_text(environment.read_text().replace("triton-24.10-cpu", "triton-26.05"))
    return root


def test_refuses_a_gpu_engine_without_trtexec(tmp_path):
    with pytest.raises(InputRefused, match=r"trtexec is not on this machine.* 8\.6"):
        run(gpu_root(tmp_path), tmp_path / "out", store=None, runner=StandInRunner())


def test_onnx_file_is_its_own_source(built, tmp_path):
    network = next(built.store.glob("networks/*/*-tokenizer.json"))
    folder = tmp_path / "root/networks"
    folder.mkdir(parents=True)
    shutil.copy(network, folder / "tokenizer.json")
    shutil.copy(next(network.parent.glob("*-model.onnx")), folder / "model.onnx")
    source = {"onnx": "networks/model.onnx", "sha256": sha256_of(folder / "model.onnx")}
    root = write_tree(tmp_path / "root", model("tiny", "fp32", source=source))
    result = run(root, tmp_path / "out", store=None, runner=StandInRunner())
    assert np.isclose(result.entry.manifest.accuracy[0].mean, 1.0)


def test_checkpoint_of_the_tree_is_built_without_fetching_anything(checkpoint, tmp_path):
    shutil.copytree(checkpoint, tmp_path / "root/models/mine")
    source = {"checkpoint": "models/mine", "sha256": checkpoint_sha256(checkpoint)}
    root = write_tree(tmp_path / "root", model("tiny", "fp32", source=source))
    runner = StandInRunner()
    result = run(root, tmp_path / "out", store=None, runner=runner)
    assert np.isclose(result.entry.manifest.accuracy[0].mean, 1.0) and runner.ran("pip") == 0


def test_refuses_a_truncated_onnx_file(built, tmp_path):
    folder = tmp_path / "root/networks"
    folder.mkdir(parents=True)
    whole = next(built.store.glob("networks/*/*-model.onnx")).read_bytes()
    (folder / "model.onnx").write_bytes(whole[: len(whole) // 2])
    source = {"onnx": "networks/model.onnx", "sha256": sha256_of(folder / "model.onnx")}
    root = write_tree(tmp_path / "root", model("tiny", "fp32", source=source))
    with pytest.raises(SourceFault, match=r"model.onnx is no valid ONNX file \(.*cut short"):
        run(root, tmp_path / "out", store=None, runner=StandInRunner())


def test_steps_that_are_printed_are_those_that_run(wheel, tmp_path):
    root, stream = write_tree(tmp_path / "root", model("tiny", "fp32")), io.StringIO()
    store = FolderStore(tmp_path / "store")
    tools = context(root, tmp_path / "out", store=store, runner=StandInRunner(wheel))
    tools = dataclasses.replace(tools, log=Log(stream))
    with tools.work:
        build(tools)
    printed = stream.getvalue().splitlines()[0].split("): ")[1].split("; ")[0].split(", ")
    assert printed == step_names(tools) == list(tools.log.seconds)
    assert printed[0] == "fetch" and printed[-1] == "publish" and "quantize" not in printed
