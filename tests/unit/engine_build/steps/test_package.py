"""Archives.

What lies where for each task and device, what the manifest says of it, and the same bytes for the
same inputs.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import tarfile

import pytest

from engine_build.errors import InputRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.packaging.archive import (
    CARRIED,
    CARRIED_FILES,
    MANIFEST_CHECK,
    ONNXRUNTIME_BACKEND,
    TOKENIZER,
    backend_file,
    entry_of,
    model_repository,
    pack,
)
from engine_build.packaging.repository import repository
from engine_build.runner import Ended
from engine_build.settings import Settings
from engine_build.steps.package import quantization, served_engine, source_commit
from engine_build.store import FolderStore, sha256_of
from onboarding.manifest import MANIFEST_NAME, TensorRecord
from onboarding.model_spec import ServingSpec
from onboarding.names import engine_card_data_path, engine_card_path
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.stand_ins import ROOT, StandInRunner, context
from tests.unit.engine_build.tiny import write_tree

ROOTS = (ROOT,)


@pytest.fixture
def engine(tmp_path):
    path = tmp_path / "engine"
    path.write_bytes(b"engine")
    return path


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(b"{}")
    return path


def laid_out(folder, time, umask):
    """One archive's folder, with everything that could leak into its bytes different."""
    before = os.umask(umask)
    try:
        (folder / "m/1").mkdir(parents=True)
        for name in ("m/config.pbtxt", "m/1/model.onnx", "manifest.json", "m/1/ü.txt"):
            (folder / name).write_text(name)
            os.utime(folder / name, (time, time))
    finally:
        os.umask(before)
    return folder


def test_archive_of_the_same_files_has_the_same_bytes(tmp_path):
    digests = set()
    for name, time, umask in (
        ("one", 1, 0o022),
        ("two/deeper", 2_000_000, 0o077),
        ("three", 10, 0o000),
    ):
        packed = tmp_path / f"{time}.tar.gz"
        pack(laid_out(tmp_path / name, time, umask), packed)
        digests.add(sha256_of(packed))
    assert len(digests) == 1
    with tarfile.open(tmp_path / "1.tar.gz") as tar:
        found = [(each.name, each.mtime, each.uid, each.uname, each.mode) for each in tar]
    names = ("m/1/model.onnx", "m/1/ü.txt", "m/config.pbtxt", "manifest.json")
    assert found == [(name, 0, 0, "", 0o644) for name in sorted(names)]


def test_manifest_lies_at_the_archives_root_beside_the_model_folders(built):
    with tarfile.open(built.store / built.result.entry.archive.path) as tar:
        names = tar.getnames()
    assert MANIFEST_NAME in names and "config.pbtxt" not in names
    assert {name.partition("/")[0] for name in names} == {MANIFEST_NAME, "tiny"}


def test_archive_packed_again_elsewhere_has_the_published_digest(built, tmp_path):
    entry = built.result.entry
    digests = set()
    for name, umask in (("here", 0o022), ("elsewhere/deep", 0o077)):
        before = os.umask(umask)
        try:
            with tarfile.open(built.store / entry.archive.path) as tar:
                tar.extractall(tmp_path / name, filter="data")
            pack(tmp_path / name, tmp_path / f"{umask}.tar.gz")
        finally:
            os.umask(before)
        digests.add(sha256_of(tmp_path / f"{umask}.tar.gz"))
    assert digests == {entry.archive.sha256}


def test_entry_follows_from_the_archive_alone(built):
    entry = built.result.entry
    assert entry_of(built.store / entry.archive.path, entry.manifest.engine_key) == entry


def test_cpu_archive_is_one_model_that_carries_its_backend(engine, tokenizer):
    laid = repository(golden.served(), engine, tokenizer, is_cpu=True, code_roots=ROOTS)
    folder = "embedder/1"
    assert list(laid.files) == [
        "embedder/config.pbtxt",
        *(
            f"{folder}/{name}"
            for name in ("model.py", "manifest_check.py", "model.onnx", "tokenizer.json")
        ),
    ]
    assert (laid.engine_file, laid.tokenizer_file) == (
        f"{folder}/model.onnx",
        f"{folder}/tokenizer.json",
    )


def test_cpu_archive_of_tensors_has_no_tokenizer(engine):
    laid = repository(golden.served(**golden.VISION), engine, None, is_cpu=True, code_roots=ROOTS)
    assert laid.tokenizer_file is None and not any("tokenizer" in name for name in laid.files)


def test_gpu_archive_of_texts_is_an_ensemble_and_its_members(engine, tokenizer, tmp_path):
    laid = repository(golden.served(), engine, tokenizer, is_cpu=False, code_roots=ROOTS)
    assert sorted(laid.files) == sorted(
        [
            "embedder/config.pbtxt",
            "embedder/1/ensemble.txt",
            "embedder_engine/config.pbtxt",
            "embedder_engine/1/model.plan",
            "embedder_tokenizer/config.pbtxt",
            *(
                f"embedder_tokenizer/1/{n}"
                for n in ("model.py", "manifest_check.py", "tokenizer.json")
            ),
        ]
    )
    assert (laid.engine_file, laid.tokenizer_file) == (
        "embedder_engine/1/model.plan",
        "embedder_tokenizer/1/tokenizer.json",
    )
    digests = model_repository(tmp_path / "archive", laid.files)
    assert digests["embedder_engine/1/model.plan"] == sha256_of(engine)
    assert digests["embedder_tokenizer/1/model.py"] == sha256_of(ROOT / CARRIED / TOKENIZER)


def test_gpu_archive_of_tensors_is_the_plan_alone(engine):
    laid = repository(golden.served(**golden.VISION), engine, None, is_cpu=False, code_roots=ROOTS)
    assert list(laid.files) == ["vision/config.pbtxt", "vision/1/model.plan"]


@pytest.mark.parametrize(
    ("is_cpu", "folder", "name"),
    [(True, "embedder/1", ONNXRUNTIME_BACKEND), (False, "embedder_tokenizer/1", TOKENIZER)],
)
def test_archive_that_refuses_long_texts_carries_the_same_files(
    is_cpu, folder, name, engine, tokenizer, tmp_path
):
    laid = repository(
        golden.served(serving=ServingSpec(auto_truncate=False)),
        engine,
        tokenizer,
        is_cpu=is_cpu,
        code_roots=ROOTS,
    )
    plain = repository(golden.served(), engine, tokenizer, is_cpu=is_cpu, code_roots=ROOTS)
    assert laid == plain
    digests = model_repository(tmp_path / "laid", laid.files)
    carried = {"model.py": name, MANIFEST_CHECK: MANIFEST_CHECK}
    assert {file: digests[f"{folder}/{file}"] for file in carried} == {
        file: sha256_of(ROOT / CARRIED / source) for file, source in carried.items()
    }


def test_manifest_says_what_clients_see_and_whether_servers_warm_up(built):
    manifest = built.result.entry.manifest
    assert [(each.name, each.datatype, each.shape) for each in manifest.inputs] == [
        ("text", "BYTES", (-1, 1))
    ]
    assert [(each.name, each.datatype) for each in manifest.outputs] == [("embedding", "FP32")]
    assert manifest.warm_up and manifest.labels is None and manifest.plan is None
    assert manifest.quantization.int8_layers > 0 and manifest.quantization.method == "max"
    assert 0 < manifest.quantization.int8_share_of_matmul_macs < 1
    assert manifest.speedups and manifest.runtimes
    assert all(record.mean_interval is not None for record in manifest.accuracy)


def test_card_lies_beside_the_archive_in_the_work_folder_and_in_the_store(built):
    key = built.result.entry.manifest.engine_key
    selected = FolderStore(built.store.parent / "out")
    for name in (engine_card_path(key), engine_card_data_path(key)):
        assert FolderStore(built.store).read(name) == selected.read(name) is not None


def test_one_value_a_row_is_served_as_an_axis_of_one():
    shown = golden.served(**golden.DETECTOR)
    assert [each.shape for each in shown.client_inputs] == [(-1, 3, -1), (-1, 1)]
    assert [each.shape for each in shown.client_outputs] == [(-1, 100, 4), (-1, 1)]


def test_served_follows_the_order_and_the_network(built, tmp_path):
    request = context(built.root, tmp_path, store=None, runner=StandInRunner()).request
    outputs = (TensorRecord(name="y", datatype="FP32", shape=(-1, 7)),)
    network = Network(
        precision="float", path=tmp_path, inputs=golden.TOKENS, outputs=outputs, facts={}
    )
    shown = served_engine(request, network)
    assert (shown.model, shown.max_batch_size, shown.profiles[0].sequence) == (
        "tiny",
        4,
        (4, 8, 16),
    )
    assert [(each.name, each.shape) for each in shown.client_outputs] == [("embedding", (-1, 7))]


def test_quantization_by_a_calibration_cache_names_no_layers(built, tmp_path):
    request = context(built.root, tmp_path, store=None, runner=StandInRunner()).request
    assert quantization(request, None) is None
    record = quantization(dataclasses.replace(request, quantization="calibration-cache"), None)
    assert (record.mode, record.method, record.samples) == ("calibration-cache", "max", 48)
    assert record.int8_share_of_matmul_macs is None and record.float_layers == ()


def test_quantization_of_a_float_engine_is_not_recorded(built, tmp_path):
    request = context(
        built.root, tmp_path, store=None, runner=StandInRunner(), model="tiny-fp32"
    ).request
    assert (
        quantization(dataclasses.replace(request, quantization="calibration-cache"), None) is None
    )


def test_refuses_an_archive_of_another_engine(built):
    with pytest.raises(ValueError, match="holds engine"):
        entry_of(built.store / built.result.entry.archive.path, "0" * 20)


@pytest.mark.parametrize("missing", CARRIED_FILES)
def test_refuses_a_source_tree_without_what_archives_carry(tmp_path, missing):
    shutil.copytree(ROOT / CARRIED, tmp_path / CARRIED)
    assert backend_file((tmp_path / "none", tmp_path), TOKENIZER) == tmp_path / CARRIED / TOKENIZER
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
