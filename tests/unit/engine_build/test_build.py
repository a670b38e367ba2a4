"""A whole build of a tiny model, with processes stood in for."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import tarfile

import pytest

from engine_build.build import build, build_networks
from engine_build.datasets.dataset import rows_in_order
from engine_build.datasets.text import TextEncoder
from engine_build.errors import (
    BudgetMissed,
    InputRefused,
    PublishFailed,
    SourceFault,
)
from engine_build.log import Log
from engine_build.ort import OrtNetwork
from engine_build.pipeline import step_names
from engine_build.runner import Ended
from engine_build.sources.source_model import SourceModel
from engine_build.store import FolderStore, sha256_of
from onboarding.lock import LockEntry
from onboarding.names import engine_archive_path, engine_record_path, network_path
from tests.unit.engine_build.stand_ins import BreakingStore, StandInRunner, context
from tests.unit.engine_build.tiny import WIDTH, model, sample_texts, write_tree


def run(root, out, *, store=None, runner=None, model="tiny", action=build):
    runner = StandInRunner() if runner is None else runner
    tools = context(root, out, store=store, runner=runner, model=model)
    with tools.work:
        return action(tools)


@pytest.fixture
def networks(tiny_build, tmp_path):
    """A store with the networks of a build, and no engine."""
    shutil.copytree(tiny_build.store / "networks", tmp_path / "store/networks")
    return FolderStore(tmp_path / "store")


@pytest.fixture
def archive(tiny_build, tmp_path):
    """The unpacked archive."""
    with tarfile.open(tiny_build.store / tiny_build.result.entry.archive.path) as tar:
        tar.extractall(tmp_path, filter="data")
    return tmp_path


def test_archive_and_record_are_those_of_the_manifest(tiny_build, archive):
    entry = tiny_build.result.entry
    manifest, path = (
        entry.manifest,
        tiny_build.store / engine_archive_path(entry.manifest.engine_key),
    )
    found = (str(path.relative_to(tiny_build.store)), sha256_of(path), path.stat().st_size)
    assert found == (entry.archive.path, entry.archive.sha256, entry.archive.size_bytes)
    record = (tiny_build.store / engine_record_path(manifest.engine_key)).read_bytes()
    assert LockEntry.model_validate_json(record) == entry
    files = {path.relative_to(archive).as_posix() for path in archive.rglob("*") if path.is_file()}
    assert files == {"manifest.json", *manifest.files}
    versioned = ("model.py", "manifest_check.py", "heads.py", "model.onnx", "plan.json")
    versioned += ("tokenizer.json",)
    assert set(manifest.files) == {"tiny/config.pbtxt", *(f"tiny/1/{name}" for name in versioned)}
    assert all(sha256_of(archive / name) == digest for name, digest in manifest.files.items())
    assert (archive / "manifest.json").read_bytes() == manifest.to_bytes()
    assert f"dims: [ {WIDTH} ]" in (archive / "tiny/config.pbtxt").read_text()
    subjects = [record.subject for record in manifest.accuracy]
    assert set(subjects) == {"fp32 engine", "int8 engine"}
    assert subjects[-1] == f"{manifest.precision} engine"
    assert {record.verdict for record in manifest.accuracy} == {"pass"}
    assert {check.network for check in manifest.compile_checks} == {"float"}
    precisions = ("fp32", "int8", "fp32 (duplicate control)")
    measured = {(record.runtime, record.precision) for record in manifest.benchmark}
    assert measured == {("pytorch", "fp32"), *(("onnxruntime", name) for name in precisions)}
    shapes = {(record.batch, record.sequence) for record in manifest.benchmark}
    assert shapes == {(1, 4), (2, 8), (4, 16)}
    assert manifest.decision.startswith(f"{manifest.precision}: int8 ")
    assert (manifest.builder.source_commit, manifest.builder.image) == ("abc", "image@sha256:1")


def test_published_engine_answers_as_the_source_model_does(archive, checkpoint):
    source, texts = SourceModel(checkpoint, longest=16), sample_texts(40, seed=5)
    encoder = TextEncoder(archive / "tiny/1/tokenizer.json", inputs=source.inputs, longest=16)
    rows = rows_in_order(OrtNetwork(archive / "tiny/1/model.onnx").rows, encoder, texts, 4)
    assert (rows * rows_in_order(source.rows, encoder, texts, 8)).sum(axis=1).min() > 0.95


def test_known_key_builds_nothing(tiny_build, tmp_path):
    runner = StandInRunner()
    result = run(tiny_build.root, tmp_path, store=FolderStore(tiny_build.store), runner=runner)
    assert (result.status, result.entry) == ("known", tiny_build.result.entry)
    assert runner.commands == []


def test_refuses_a_candidate_that_could_not_be_published_before_it_builds(tiny_build, tmp_path):
    key = tiny_build.result.entry.manifest.engine_key
    record = tmp_path / "store" / engine_record_path(key)
    record.parent.mkdir(parents=True)
    record.write_bytes((tiny_build.store / engine_record_path(key)).read_bytes())
    runner, store = StandInRunner(), FolderStore(tmp_path / "store")
    tools = context(tiny_build.root, tmp_path, store=store, runner=runner, candidate="0-0")
    with tools.work, pytest.raises(PublishFailed, match="a record without its archive"):
        build(tools)
    assert runner.commands == []


def test_opset_of_the_model_file_is_exported_and_recorded(wheel, tiny_build, tmp_path):
    spec = model("tiny", "fp32")
    spec["engine"]["opset"] = 18
    root, store = write_tree(tmp_path / "root", spec), FolderStore(tmp_path / "store")
    made = run(root, tmp_path / "out", store=store, runner=StandInRunner(wheel))
    entry = made.entry
    key = entry.manifest.network_keys["float"]
    assert entry.manifest.opset == 18 and tiny_build.result.entry.manifest.opset is None
    facts = json.loads((tmp_path / "store" / network_path(key, "network.json")).read_text())
    assert facts["facts"]["opset"] == 18


def test_networks_of_one_source_are_made_once(tiny_build, networks, tmp_path):
    runner, name = StandInRunner(), "tiny-int8"
    result = run(tiny_build.root, tmp_path / "out", store=networks, runner=runner, model=name)
    assert result.entry.manifest.precision == "int8"
    assert runner.ran("pip") == 0


def test_networks_alone_are_published_and_another_machine_builds_from_them(wheel, tmp_path):
    root, store = write_tree(tmp_path / "root"), FolderStore(tmp_path / "store")
    runner = StandInRunner(wheel)
    made = run(root, tmp_path / "first", store=store, runner=runner, action=build_networks)
    records = {path.parent.name for path in (tmp_path / "store").glob("networks/*/network.json")}
    assert (set(made.keys), records) == ({"float", "int8"}, set(made.keys.values()))
    assert not (tmp_path / "store/engines").exists()
    without_source = StandInRunner()
    second = run(root, tmp_path / "second", store=store, runner=without_source)
    assert (second.status, without_source.ran("pip")) == ("built", 0)
    assert without_source.ran("engine_build.onnx_graph.rtx") == 0


def test_model_that_refuses_long_texts_is_another_engine_of_the_same_networks(
    tiny_build, networks, tmp_path
):
    spec = model("tiny-fp32", "fp32", serving={"auto_truncate": False})
    root, runner = write_tree(tmp_path / "root", spec), StandInRunner()
    options = {"store": networks, "model": "tiny-fp32"}
    manifest = run(root, tmp_path / "out", runner=runner, **options).entry.manifest
    assert (runner.ran("pip"), manifest.auto_truncate) == (0, False)
    backend = tiny_build.result.entry.manifest.files["tiny/1/model.py"]
    assert manifest.files["tiny-fp32/1/model.py"] == backend
    other = run(tiny_build.root, tmp_path / "cuts", **options).entry.manifest
    assert other.auto_truncate and other.engine_key != manifest.engine_key
    assert other.network_keys == manifest.network_keys


def test_damaged_network_in_the_store_is_made_anew(tiny_build, networks, wheel, tmp_path):
    for path in (tmp_path / "store").glob("networks/*/*-model.onnx"):
        path.write_bytes(path.read_bytes()[:-10])
    runner = StandInRunner(wheel)
    run(tiny_build.root, tmp_path / "out", store=networks, runner=runner, model="tiny-fp32")
    assert runner.ran("pip") == 1


class KilledInTheCheck(StandInRunner):
    """Ends the build where the compile check would begin."""

    def run(self, command):
        if "engine_build.onnx_graph.rtx" in command.argv:
            raise KeyboardInterrupt
        return super().run(command)


def test_build_killed_before_the_end_goes_on_from_what_is_finished(tiny_build, wheel, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(tiny_build.root, tmp_path, runner=KilledInTheCheck(wheel))
    (tmp_path / "scratch/engines").mkdir(parents=True)
    again = StandInRunner()
    assert run(tiny_build.root, tmp_path, runner=again).status == "built"
    assert again.ran("pip") == 0
    assert not (tmp_path / "scratch").exists()


def test_engine_is_invisible_until_its_record_is_written(tiny_build, networks, tmp_path):
    def is_record(name):
        return name.endswith("lock-entry.json")

    store = BreakingStore(tmp_path / "store", is_record, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        run(tiny_build.root, tmp_path / "out", store=store)
    key = tiny_build.result.entry.manifest.engine_key
    assert networks.size(engine_archive_path(key)) is not None
    assert networks.size(engine_record_path(key)) is None
    runner = StandInRunner()
    result = run(tiny_build.root, tmp_path / "out", store=networks, runner=runner)
    assert runner.commands == []
    assert LockEntry.model_validate_json(networks.read(engine_record_path(key))) == result.entry


def strict_tree(tmp_path, precision, mean):
    budget = {"dataset": "models/data/validation.txt", "metric": "cosine", "budget": {"mean": mean}}
    return write_tree(tmp_path / "root", model("tiny", precision, accuracy=budget))


def test_refuses_an_engine_outside_its_budget_and_publishes_nothing(networks, tmp_path):
    words = r"the closest, int8, has mean cosine [01]\.\d+ .*wanted mean 1;"
    with pytest.raises(BudgetMissed, match=words):
        run(strict_tree(tmp_path, "int8", 1.0), tmp_path / "out", store=networks)
    assert not (tmp_path / "store/engines").exists()


def test_auto_falls_back_to_fp32_outside_the_budget(networks, tmp_path):
    root = strict_tree(tmp_path, "auto", 0.999999)
    manifest = run(root, tmp_path / "out", store=networks).entry.manifest
    assert manifest.precision == "fp32" and "outside the budget" in manifest.decision


def test_compile_check_that_passed_is_kept_with_its_network(tiny_build, networks, tmp_path):
    assert len(list((tmp_path / "store").glob("networks/*/check-*.json"))) == 1
    runner = StandInRunner(check=Ended(code=-6, output="", errors="must not run"))
    result = run(tiny_build.root, tmp_path / "out", store=networks, runner=runner)
    assert result.entry.manifest.compile_checks == tiny_build.result.entry.manifest.compile_checks


def test_check_of_another_file_is_made_again(tiny_build, networks, tmp_path):
    record = next((tmp_path / "store").glob("networks/*/check-*.json"))
    record.rename(record.with_name("check-0123456789abcdef.json"))
    runner = StandInRunner()
    run(tiny_build.root, tmp_path / "out", store=networks, runner=runner)
    assert runner.ran("engine_build.onnx_graph.rtx") == 1


def test_what_the_compile_check_refuses_is_evidence_where_no_tensorrt_runs(
    tiny_build, networks, tmp_path
):
    for path in (tmp_path / "store").glob("networks/*/check-*.json"):
        path.unlink()
    fault = {"message": "no importer", "node": -1, "name": "/x", "operator": "Foo"}
    output = json.dumps({"version": "1.7", "verdict": "fail", "seconds": 0.1, "faults": [fault]})
    runner = StandInRunner(check=Ended(code=0, output=output, errors=""))
    result = run(tiny_build.root, tmp_path / "out", store=networks, runner=runner)
    checks = result.entry.manifest.compile_checks
    assert {check.verdict for check in checks} == {"fail"}
    words = (
        r"TensorRT-RTX refuses: node /x \(operator Foo\): no importer; way out: .*decides nothing"
    )
    assert all(re.match(words, check.reason) for check in checks)


def test_refuses_a_gpu_engine_without_trtexec(tmp_path):
    spec = model("tiny", "auto", endpoint={"instance_type": "ml.g5.xlarge"})
    root = write_tree(tmp_path / "root", spec)
    environment = root / "environments/desk.yaml"
    environment.write_text(environment.read_text().replace("triton-24.10-cpu", "triton-26.05"))
    with pytest.raises(InputRefused, match=r"trtexec is not on this machine.* 8\.6"):
        run(root, tmp_path / "out")


def onnx_tree(tiny_build, tmp_path, length=None):
    """A model whose source is the first bytes of a built network, and its tokenizer."""
    folder = tmp_path / "root/networks"
    folder.mkdir(parents=True)
    tokenizer = next(tiny_build.store.glob("networks/*/*-tokenizer.json"))
    network = next(tokenizer.parent.glob("*-model.onnx"))
    shutil.copy(tokenizer, folder / "tokenizer.json")
    (folder / "model.onnx").write_bytes(network.read_bytes()[:length])
    source = {"onnx": "networks/model.onnx", "sha256": sha256_of(folder / "model.onnx")}
    return write_tree(tmp_path / "root", model("tiny", "fp32", source=source))


def test_refuses_a_truncated_onnx_file(tiny_build, tmp_path):
    with pytest.raises(SourceFault, match=r"model.onnx is no valid ONNX file \(.*cut short"):
        run(onnx_tree(tiny_build, tmp_path, 20_000), tmp_path / "out")


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
