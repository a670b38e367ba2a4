"""Archives.

What lies where for each task and device, what the manifest says of it, and the same bytes for the
same inputs.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tarfile
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest

from engine_build.errors import InputRefused
from engine_build.evaluation.decision import Candidate
from engine_build.onnx_graph.data_file import DATA_NAME
from engine_build.packaging.archive import (
    CARRIED,
    CARRIED_FILES,
    MANIFEST_CHECK,
    backend_file,
    entry_of,
    model_repository,
    pack,
)
from engine_build.packaging.repository import repository
from engine_build.quantization.dynamic import quantize_dynamically
from engine_build.runner import Ended
from engine_build.settings import Settings
from engine_build.steps.package import quantization, served_engine, source_commit
from engine_build.store import sha256_of
from onboarding.manifest import MANIFEST_NAME
from onboarding.serving_spec import ServingSpec
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.stand_ins import ROOT, StandInRunner, context
from tests.unit.engine_build.tiny import write_tree


@pytest.fixture
def lay_out(tmp_path):
    """Lays out the model repository of golden.served_model(**changes)."""
    for name in ("engine", "tokenizer.json"):
        (tmp_path / name).write_bytes(b"{}")

    def lay_out(*, is_cpu, has_tokenizer=True, **changes):
        tokenizer = tmp_path / "tokenizer.json" if has_tokenizer else None
        served, engine = golden.served_model(**changes), tmp_path / "engine"
        return repository(
            served,
            engine,
            tokenizer,
            runtime="onnxruntime" if is_cpu else "tensorrt",
            code_roots=(ROOT,),
        )

    return lay_out


@contextmanager
def umask(mask):
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("folder", "time", "mask"), [("two/deeper", 2_000_000, 0o077), ("three", 10, 0o000)]
)
def test_archive_of_the_same_files_has_the_same_bytes(folder, time, mask, tmp_path):
    names = ("m/1/model.onnx", "m/1/ü.txt", "m/config.pbtxt", "manifest.json")
    for place, moment, rights in (("one", 1, 0o022), (folder, time, mask)):
        with umask(rights):
            (tmp_path / place / "m/1").mkdir(parents=True)
            for name in names:
                (tmp_path / place / name).write_text(name)
                os.utime(tmp_path / place / name, (moment, moment))
        pack(tmp_path / place, tmp_path / f"{moment}.tar.gz")
    assert sha256_of(tmp_path / "1.tar.gz") == sha256_of(tmp_path / f"{time}.tar.gz")
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        members = [(item.name, item.mtime, item.uid, item.uname, item.mode) for item in tar]
    assert members == [(name, 0, 0, "", 0o644) for name in sorted(names)]


def test_archive_packed_again_elsewhere_has_the_published_digest(tiny_build, tmp_path):
    entry = tiny_build.result.entry
    path = tiny_build.store / entry.archive.path
    with umask(0o077), tarfile.open(path) as tar:
        assert {name.partition("/")[0] for name in tar.getnames()} == {MANIFEST_NAME, "tiny"}
        tar.extractall(tmp_path / "deep/elsewhere", filter="data")
        pack(tmp_path / "deep/elsewhere", tmp_path / "again.tar.gz")
    assert sha256_of(tmp_path / "again.tar.gz") == entry.archive.sha256
    assert entry_of(path, entry.manifest.engine_key, entry.plan_key) == entry
    with pytest.raises(ValueError, match="holds engine"):
        entry_of(path, "0" * 20)


@pytest.mark.parametrize("has_data", [True, False])
def test_data_of_a_network_lies_beside_it(has_data, lay_out, tmp_path):
    if has_data:
        (tmp_path / DATA_NAME).write_bytes(b"weights")
    laid = lay_out(is_cpu=True)
    name = str(Path(laid.engine_file).with_name(DATA_NAME))
    assert laid.files.get(name) == (tmp_path / DATA_NAME if has_data else None)
    digests = model_repository(tmp_path / "archive", laid.files)
    assert (name in digests) is has_data  # the manifest's files, which servers check


BACKEND = ("model.py", "manifest_check.py", "heads.py")


CPU_TEXT = ["config.pbtxt", *(f"1/{n}" for n in (*BACKEND, "model.onnx", "tokenizer.json"))]


@pytest.mark.parametrize(
    ("is_cpu", "changes", "files", "tokenizer"),
    [
        (True, {}, CPU_TEXT, "1/tokenizer.json"),
        (True, golden.VISION, CPU_TEXT[:-1], None),
        (False, golden.VISION, ["config.pbtxt", "1/model.plan"], None),
    ],
    ids=["texts on a CPU", "tensors on a CPU", "tensors on a GPU"],
)
def test_archive_is_one_model_with_what_it_needs(is_cpu, changes, files, tokenizer, lay_out):
    laid = lay_out(is_cpu=is_cpu, has_tokenizer=tokenizer is not None, **changes)
    folder = changes.get("model", "embedder")
    assert list(laid.files) == [f"{folder}/{name}" for name in files]
    assert laid.engine_file == f"{folder}/1/{'model.onnx' if is_cpu else 'model.plan'}"
    assert laid.tokenizer_file == (tokenizer and f"{folder}/{tokenizer}")


def test_gpu_archive_of_texts_is_an_ensemble_and_its_members(lay_out, tmp_path):
    laid = lay_out(is_cpu=False)
    tokenizer = "embedder_tokenizer"
    assert set(laid.files) == {
        "embedder/config.pbtxt",
        "embedder/1/ensemble.txt",
        "embedder_engine/config.pbtxt",
        "embedder_engine/1/model.plan",
        f"{tokenizer}/config.pbtxt",
        *(f"{tokenizer}/1/{name}" for name in (*BACKEND, "tokenizer.json")),
    }
    assert laid.engine_file == "embedder_engine/1/model.plan"
    assert laid.tokenizer_file == f"{tokenizer}/1/tokenizer.json"
    digests = model_repository(tmp_path / "archive", laid.files)
    assert digests["embedder_engine/1/model.plan"] == sha256_of(tmp_path / "engine")
    on_cpu = model_repository(tmp_path / "cpu", lay_out(is_cpu=True).files)
    for carried, folder, name in (
        (digests, f"{tokenizer}/1", "tokenizer.py"),
        (on_cpu, "embedder/1", "onnxruntime_backend.py"),
    ):
        assert carried[f"{folder}/model.py"] == sha256_of(ROOT / CARRIED / name)
        assert carried[f"{folder}/{MANIFEST_CHECK}"] == sha256_of(ROOT / CARRIED / MANIFEST_CHECK)
    # One that refuses long texts carries the same files.
    refusing = ServingSpec(auto_truncate=False)
    for is_cpu in (True, False):
        assert lay_out(is_cpu=is_cpu, serving=refusing) == lay_out(is_cpu=is_cpu)


def test_manifest_says_what_clients_see_and_whether_servers_warm_up(tiny_build):
    manifest = tiny_build.result.entry.manifest
    (text,), (embedding,) = manifest.inputs, manifest.outputs
    assert (text.name, text.datatype, text.shape) == ("text", "BYTES", (-1, 1))
    assert (embedding.name, embedding.datatype) == ("embedding", "FP32")
    assert manifest.warm_up and manifest.labels is None and manifest.plan is None
    assert manifest.speedups and manifest.runtimes
    assert all(record.mean_interval is not None for record in manifest.accuracy)


def test_one_value_a_row_is_served_as_an_axis_of_one():
    served = golden.served_model(**golden.DETECTOR)
    assert [record.shape for record in served.client_inputs] == [(-1, 3, -1), (-1, 1)]
    assert [record.shape for record in served.client_outputs] == [(-1, 100, 4), (-1, 1)]


@pytest.fixture
def request_of(tiny_build, tmp_path):
    def request_of(name="tiny", **changes):
        tools = context(tiny_build.root, tmp_path, store=None, runner=StandInRunner(), model=name)
        return dataclasses.replace(tools.request, **changes)

    return request_of


def test_served_follows_the_order_and_the_network(request_of, tmp_path):
    network = graphs.network(tmp_path, golden.TOKENS, (graphs.record("y", -1, 7),))
    served = served_engine(request_of(), network)
    assert (served.model, served.max_batch_size) == ("tiny", 4)
    assert served.profiles[0].sequence == (4, 8, 16)
    outputs = [(record.name, record.shape) for record in served.client_outputs]
    assert outputs == [("embedding", (-1, 7))]


def test_quantization_of_a_cache_a_cpu_and_a_float_engine(request_of, tmp_path):
    onnx.save(graphs.chain("Relu"), tmp_path / "float.onnx")
    quantize_dynamically(tmp_path / "float.onnx", tmp_path / "int8.onnx")
    int8 = Candidate(precision="int8", path=tmp_path / "int8.onnx")
    fp32 = Candidate(precision="fp32", path=Path("model.onnx"))
    cached = {"quantization": "calibration-cache"}
    record = quantization(request_of(**cached), None, int8)
    assert (record.mode, record.method, record.samples) == ("calibration-cache", "max", 48)
    assert record.int8_share_of_matmul_macs is None and record.float_layers == ()
    record = quantization(request_of(), None, int8)
    assert (record.mode, record.method, record.int8_layers) == ("dynamic", None, 2)
    assert quantization(request_of(), None, fp32) is None
    assert quantization(request_of("tiny-fp32", **cached), None, fp32) is None


@pytest.mark.parametrize("missing", CARRIED_FILES)
def test_refuses_a_source_tree_without_what_archives_carry(tmp_path, missing):
    name = "tokenizer.py"
    shutil.copytree(ROOT / CARRIED, tmp_path / CARRIED)
    assert backend_file((tmp_path / "none", tmp_path), name) == tmp_path / CARRIED / name
    (tmp_path / CARRIED / missing).unlink()
    with pytest.raises(InputRefused, match=f"{CARRIED / missing} is missing from the source tree"):
        backend_file((tmp_path / "none", tmp_path))


class Git:
    """A runner of git alone, in a work tree at a commit, with changes or without."""

    def __init__(self, changes):
        self._changes = changes

    def find(self, program):
        return f"/usr/bin/{program}"

    def run(self, command):
        output = self._changes if "status" in command.argv else "c0ffee\n"
        return Ended(code=0, output=output, errors="")


@pytest.mark.parametrize(
    ("given", "changes", "recorded"),
    [
        (None, "", "c0ffee"),
        (None, " M models/tiny.yaml\n", "c0ffee-dirty"),
        ("abc", " M models/tiny.yaml\n", "abc-dirty"),
        ("abc-dirty", " M models/tiny.yaml\n", "abc-dirty"),
        ("abc", "", "abc"),
    ],
)
def test_source_commit_says_that_the_tree_has_changes(given, changes, recorded, tmp_path):
    root = write_tree(tmp_path / "root")
    tools = context(root, tmp_path / "out", store=None, runner=Git(changes))
    tools = dataclasses.replace(tools, settings=Settings(source_commit=given))
    assert source_commit(tools) == given
    (root / ".git").mkdir()
    assert source_commit(tools) == recorded
