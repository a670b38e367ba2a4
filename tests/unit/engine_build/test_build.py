"""Whole builds on a CPU, and one of a GPU engine from checkpoint to archive.

In that one trtexec, nvidia-smi and TensorRT's runtime are stood in for.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shutil
import tarfile

import pytest

from engine_build.build import build, build_networks
from engine_build.datasets.dataset import Shape
from engine_build.errors import BudgetMissed, InputRefused, PublishFailed
from engine_build.log import Log
from engine_build.runner import Ended
from engine_build.store import FolderStore, sha256_of
from onboarding.lock import LockEntry
from onboarding.names import engine_archive_path, engine_record_path
from tests.unit.engine_build.stand_ins import (
    BreakingStore,
    StandInRunner,
    context,
    request_of,
)
from tests.unit.engine_build.tensorrt.gpu_machine import GpuMachine, install_runtime
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


def test_networks_alone_are_published_and_another_machine_builds_from_them(wheel, tmp_path):
    root, store = write_tree(tmp_path / "root"), FolderStore(tmp_path / "store")
    runner = StandInRunner(wheel)
    keys = context(root, tmp_path / "first", store=store, runner=runner).request.network_keys
    run(root, tmp_path / "first", store=store, runner=runner, action=build_networks)
    records = {path.parent.name for path in (tmp_path / "store").glob("networks/*/network.json")}
    assert (set(keys), records) == ({"float", "int8"}, set(keys.values()))
    assert not (tmp_path / "store/engines").exists()
    without_source = StandInRunner()
    second = run(root, tmp_path / "second", store=store, runner=without_source)
    assert (second.status, without_source.ran("pip")) == ("built", 0)
    assert without_source.ran("engine_build.onnx_graph.rtx") == 0


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


def test_refuses_an_engine_outside_its_budget_and_publishes_nothing(networks, tmp_path):
    accuracy = {"dataset": "models/data/validation.txt", "metric": "cosine", "budget": {"mean": 1}}
    root = write_tree(tmp_path / "root", model("tiny", "int8", accuracy=accuracy))
    words = r"the closest, int8, has mean cosine [01]\.\d+ .*wanted mean 1;"
    with pytest.raises(BudgetMissed, match=words):
        run(root, tmp_path / "out", store=networks)
    assert not (tmp_path / "store/engines").exists()


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
    root = write_tree(tmp_path / "root", spec, platform="triton-26.05")
    with pytest.raises(InputRefused, match=r"trtexec is not on this machine.* 8\.6"):
        run(root, tmp_path / "out")


def test_request_takes_the_first_samples_and_every_validation_line(tmp_path):
    request = request_of(write_tree(tmp_path))
    assert request.calibration.values == tuple(sample_texts(60, seed=1)[:48])
    assert len(request.validation) == 120
    sizes = (request.opt_shape, request.longest_sequence, request.max_batch_size)
    assert sizes == (Shape(batch=2, sequence=8), 16, 4)


def test_refuses_few_samples_for_int8(tmp_path):
    root = write_tree(tmp_path, model("tiny", "int8"), validation=sample_texts(20, seed=2))
    words = r"validation.txt has 20 samples, too few to judge int8; give 100 or more"
    with pytest.raises(InputRefused, match=words):
        request_of(root)


def test_refuses_a_tree_with_faults_and_shows_them_all(tmp_path):
    log = io.StringIO()
    with pytest.raises(InputRefused, match="2 faults stand above"):
        request_of(write_tree(tmp_path, model("tiny", speed=1, colour=2)), log=Log(log))
    assert "speed" in log.getvalue() and "colour" in log.getvalue()


def test_faults_of_other_files_do_not_stop_a_build(tmp_path):
    root, log = write_tree(tmp_path, model("tiny"), model("other", speed=1)), io.StringIO()
    assert request_of(root, log=Log(log)).engine_key == request_of(root).engine_key
    line = "1 faults of files that this build does not read, such as models/other.yaml"
    assert line in log.getvalue()
    with pytest.raises(InputRefused, match="speed"):
        request_of(root, "other")


def test_request_takes_the_engine_of_a_compute_capability(tmp_path):
    root = write_tree(tmp_path)
    with pytest.raises(InputRefused, match="tiny"):
        request_of(root, "tyni")
    assert request_of(root, compute_capability="cpu").engine_key == request_of(root).engine_key
    words = r"tiny is not served on that compute capability .*given 8\.9; allowed: cpu"
    with pytest.raises(InputRefused, match=words):
        request_of(root, compute_capability="8.9")


class Both:
    """The GPU machine's programs run; what fetches and loads is answered."""

    def __init__(self, programs, answers):
        self.programs, self.answers = programs, answers
        self.find = programs.find

    def run(self, command):
        return (self.answers if command.argv[1:2] == ("-m",) else self.programs).run(command)


def test_auto_tries_what_the_gpu_computes_in_and_its_engine_is_built_and_packed(
    tiny_build, wheel, tmp_path, monkeypatch
):
    install_runtime(monkeypatch)
    shutil.copytree(tiny_build.store / "networks", tmp_path / "store/networks")
    machine = GpuMachine(tmp_path, monkeypatch)
    machine.describe(gpus=["NVIDIA L4, 580.95.05, 8.9"])
    store = FolderStore(tmp_path / "store")
    tools = machine.context("auto", store=store, instance="ml.g6.xlarge")
    tools = dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner(wheel)))
    with tools.work:
        result = build(tools)
        again = build(tools)
    manifest = result.entry.manifest
    assert (result.status, again.status) == ("built", "known")
    assert set(manifest.network_keys) == {"float", "int8", "fp8"}
    assert manifest.engine_file.endswith(".plan")
    described = (manifest.plan.tensorrt, manifest.builder.gpu, manifest.builder.driver)
    assert described == ("10.16.1.11", "NVIDIA L4", "580.95.05")
    engines = {"fp16 engine", "int8 engine", "fp8 engine"}
    subjects = {record.subject for record in manifest.accuracy}
    assert subjects == {"int8 Q/DQ network", "fp8 Q/DQ network", *engines}
    measured = {(record.runtime, record.precision) for record in manifest.benchmark}
    assert {("tensorrt", name) for name in ("fp16", "int8", "fp8")} <= measured
    assert {(item.candidate, item.baseline) for item in manifest.speedups} == {
        ("int8", "fp16"),
        ("fp8", "fp16"),
    }
    assert all(f"{name} is" in manifest.decision for name in ("int8", "fp8"))
    if manifest.precision != "fp16":
        assert manifest.quantization.precision == manifest.precision
    with tarfile.open(tools.destination.path(result.entry.archive.path)) as tar:
        assert tar.extractfile(manifest.engine_file).read()[:4] == b"ftrt"
