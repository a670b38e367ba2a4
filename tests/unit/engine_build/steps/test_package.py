"""What a build packs and publishes."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import shutil
import tarfile
import zipfile
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from botocore.exceptions import EndpointConnectionError

from engine_build.build import build
from engine_build.errors import InputRefused, PublishFailed
from engine_build.evaluation.decision import Candidate
from engine_build.log import Log
from engine_build.onnx_graph.network_store import DATA_NAME
from engine_build.packaging.archive import (
    CARRIED,
    CARRIED_FILES,
    MANIFEST_CHECK,
    backend_file,
    entry_of,
    known_engine,
    model_repository,
    pack,
)
from engine_build.packaging.repository import repository
from engine_build.runner import Ended
from engine_build.steps.compile import quantize_dynamically
from engine_build.steps.package import quantization, source_commit
from engine_build.steps.publish import publish, publish_candidate
from engine_build.store import FolderStore, S3Store, sha256_of
from engine_build.workload import Settings
from onboarding.checkpoint import checkpoint_sha256
from onboarding.lock import lock_text, write_lock_entry
from onboarding.manifest import MANIFEST_NAME, TensorRecord
from onboarding.names import (
    candidate_path,
    engine_archive_path,
    engine_record_path,
)
from onboarding.serving_spec import ServingSpec
from onboarding.triton_repository import repository_models
from tests.unit.engine_build import golden_configurations as golden
from tests.unit.engine_build.places import Bucket, client_error
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


@pytest.fixture
def request_of(tiny_build, tmp_path):
    def request_of(name="tiny", **changes):
        tools = context(tiny_build.root, tmp_path, store=None, runner=StandInRunner(), model=name)
        return dataclasses.replace(tools.request, **changes)

    return request_of


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


def s3_store(bucket, **options):
    return S3Store("b", region="us-east-1", client=bucket, **options)


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    return FolderStore(tmp_path / "store") if request.param == "folder" else s3_store(Bucket())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    return path


@pytest.fixture
def send(tiny_build, tmp_path):
    """Publishes an entry to a store, by default the built one."""
    (tmp_path / "scratch").mkdir()

    def send(store, entry=tiny_build.result.entry, networks=()):
        archive, log = tiny_build.store / entry.archive.path, Log(io.StringIO())
        return publish(store, entry, archive, networks, tmp_path / "scratch", log)

    return send


@pytest.fixture
def entry(tiny_build):
    return tiny_build.result.entry


@pytest.fixture
def other(entry):
    """What another build of the same key recorded."""
    manifest = entry.manifest.model_copy(update={"load_seconds": 99.0})
    return entry.model_copy(update={"manifest": manifest})


def test_store_gives_what_was_written_and_keeps_the_first_of_two_when_set(store, file, tmp_path):
    second, copy = tmp_path / "second", tmp_path / "copy"
    second.write_bytes(b"second")
    assert store.upload(file, "a/b", only_if_absent=True)
    assert not store.upload(second, "a/b", only_if_absent=True)
    assert (store.read("a/b"), store.size("a/b")) == (b"bytes", 5)
    assert store.download("a/b", copy) and copy.read_bytes() == b"bytes"
    assert store.upload(second, "a/b") and store.read("a/b") == b"second"
    assert (store.read("a"), store.size("a"), store.download("a", copy)) == (None, None, False)


def test_an_upload_that_another_build_contests_is_tried_again_until_one_is_there(file):
    bucket, naps = Bucket(contested=2), []
    assert s3_store(bucket, sleep=naps.append).upload(file, "x", only_if_absent=True) is False
    assert (bucket.objects["x"], naps) == (b"the other's", [1, 2])


@pytest.mark.parametrize(
    ("bucket", "words"),
    [
        (Bucket(contested=99), r"S3 answers ConditionalRequestConflict \(conflict\)"),
        (Bucket(client_error("AccessDenied", "no")), r"s3://b/a/b: S3 answers AccessDenied \(no\)"),
        (
            Bucket(EndpointConnectionError(endpoint_url="http://nowhere")),
            "s3://b/a/b cannot be reached",
        ),
        (None, "cannot be written: Not a directory"),
    ],
)
def test_refuses_a_store_that_does_not_answer_or_cannot_be_written(bucket, words, file):
    naps = {"sleep": lambda seconds: None}
    store = FolderStore(file) if bucket is None else s3_store(bucket, **naps)
    with pytest.raises(PublishFailed, match=words):
        store.upload(file, "a/b", only_if_absent=True)


class Witness(FolderStore):
    """Dies at its nth call, after looking whether an engine is visible that should not be."""

    def __init__(self, folder: Path, key: str, dies_at: int = 0) -> None:
        super().__init__(folder)
        self.calls = 0
        self._sound = FolderStore(folder)
        self._dies_at = dies_at
        self._key = key
        self.names: list[str] = []

    def _count(self, name: str) -> None:
        self.calls += 1
        is_visible = known_engine(self._sound, self._key) is not None
        assert not is_visible or self.names[-1] == engine_record_path(self._key)
        if self.calls == self._dies_at:
            raise PublishFailed(f"died at {name}")

    def size(self, name):
        self._count(name)
        return super().size(name)

    def download(self, name, path):
        self._count(name)
        return super().download(name, path)

    def upload(self, path, name, *, only_if_absent=False):
        self._count(name)
        written = super().upload(path, name, only_if_absent=only_if_absent)
        self.names += [name] if written else []
        return written


def test_publish_that_dies_at_any_call_is_invisible_and_the_next_one_finishes_it(
    send, entry, file, tmp_path
):
    key = entry.manifest.engine_key
    networks = [("networks/a", file), ("networks/b", file)]
    whole = Witness(tmp_path / "whole", key)
    send(whole, networks=networks)
    assert whole.names[-2:] == [entry.archive.path, engine_record_path(key)]
    for dies_at in range(1, whole.calls + 1):
        folder = tmp_path / f"died-{dies_at}"
        with pytest.raises(PublishFailed, match="died at"):
            send(Witness(folder, key, dies_at), networks=networks)
        sound = FolderStore(folder)
        assert known_engine(sound, key) is None
        assert not list(folder.rglob(".part-*"))
        sent = Witness(folder, key)
        before = {name for name in whole.names if sound.size(name) is not None}
        assert send(sent, networks=networks) == entry == known_engine(sound, key)
        assert not {"networks/a", "networks/b"} & before & set(sent.names)
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert {path.relative_to(folder).as_posix() for path in files} == set(whole.names)


def test_two_builds_of_one_key_agree_on_the_first_archive(store, send, entry, other):
    assert send(store) == entry
    assert send(store, other) == entry
    assert known_engine(store, entry.manifest.engine_key) == entry


def test_candidate_is_an_archive_and_no_engine(store, tiny_build, entry, file):
    key, archive = entry.manifest.engine_key, tiny_build.store / entry.archive.path
    for _ in range(2):
        publish_candidate(store, entry, archive, [("networks/a", file)], "0-0")
    assert store.read(candidate_path(key, "0-0", "model.tar.gz")) == archive.read_bytes()
    assert store.read("networks/a") == file.read_bytes()
    assert store.size(engine_archive_path(key)) is store.size(engine_record_path(key)) is None


def test_damaged_archive_in_the_store_is_replaced(store, send, entry, file):
    name = engine_archive_path(entry.manifest.engine_key)
    store.upload(file, name)
    assert send(store) == entry
    assert store.size(name) == entry.archive.size_bytes


FOLDER = ROOT / "tests/fixtures/triton_repository"
PIN = "mine==1.0"


def model(**source):
    return {
        "name": "mood",
        "task": "tensors",
        "source": {"triton_repository": source},
        "endpoint": {"instance_type": "ml.c7i.large"},
    }


def tree(root, change=None):
    shutil.copytree(FOLDER, root / "models/mood")
    if change is not None:
        change(root / "models/mood")
    write_tree(root, model(folder="models/mood", sha256=checkpoint_sha256(root / "models/mood")))
    return root


def wheel_tree(root, folder=FOLDER):
    root.mkdir()
    path = root / "mine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                wheel.write(file, f"mine/repository/{file.relative_to(folder)}")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    write_tree(root, model(python_package=PIN, path="mine/repository", sha256=digest))
    return path


def run(root, out, wheel=None):
    store = FolderStore(root / "store")
    tools = context(root, out, store=store, runner=StandInRunner(wheel), model="mood")
    with tools.work:
        return build(tools), store, tools


def test_archive_holds_the_repository_and_says_that_nothing_was_measured(tmp_path):
    result, store, _ = run(tree(tmp_path / "tree"), tmp_path / "out")
    manifest = result.entry.manifest
    assert result.status == "built"
    assert manifest.inputs == (TensorRecord(name="x", datatype="FP32", shape=(-1, 4)),)
    assert manifest.outputs == (TensorRecord(name="label", datatype="BYTES", shape=(-1, 1)),)
    assert repository_models(manifest) == ("label", "mood", "other", "scale")
    assert (manifest.runtime.name, manifest.runtime.version) == ("triton", "24.10")
    assert manifest.max_batch_size == 8 and manifest.accuracy_records == ()
    path = write_lock_entry(tmp_path, "mood", result.entry)
    assert "accuracy: not measured\n" in path.read_text()
    with tarfile.open(store.path(engine_archive_path(manifest.engine_key))) as archive:
        names = set(archive.getnames())
        model_file = archive.extractfile("scale/1/model.py")
        assert model_file is not None
        assert model_file.read() == (FOLDER / "scale/1/model.py").read_bytes()
    assert names == {*manifest.files, "manifest.json"}
    assert run(tmp_path / "tree", tmp_path / "again")[0].status == "known"


def test_archive_is_the_same_of_a_folder_and_of_a_wheel_but_for_its_key(tmp_path):
    of_folder, _, _ = run(tree(tmp_path / "tree"), tmp_path / "out")
    wheel = wheel_tree(tmp_path / "wheel")
    of_wheel, _, _ = run(tmp_path / "wheel", tmp_path / "out-wheel", wheel)
    first, second = of_folder.entry.manifest, of_wheel.entry.manifest
    assert first.files == second.files and first.engine_key != second.engine_key
    assert "accuracy" in lock_text(of_wheel.entry)


def test_refuses_every_fault_of_a_wheel_at_once(tmp_path, capsys):
    shutil.copytree(FOLDER, tmp_path / "broken")
    shutil.rmtree(tmp_path / "broken/label")
    (tmp_path / "broken/scale/config.pbtxt").write_text('backend: "onnxruntime"\ninput { }\n')
    wheel = wheel_tree(tmp_path / "wheel", tmp_path / "broken")
    with pytest.raises(InputRefused, match="5 faults stand above, the first: "):
        run(tmp_path / "wheel", tmp_path / "out", wheel)
