"""Archives, publishing and stores."""

from __future__ import annotations

import os
import tarfile

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from engine_build.archive import BACKEND, backend_file, entry_bytes, entry_of, pack
from engine_build.errors import InputRefused, PublishFailed
from engine_build.model_configuration import text_embedding_configuration
from engine_build.publication import known_engine, publish
from engine_build.store import FolderStore, S3Store, sha256_of, store_at
from onboarding.model_spec import DynamicBatchingSpec, ServingSpec
from onboarding.names import engine_archive_path, engine_record_path
from tests.unit.engine_build.stand_ins import BreakingStore


class Bucket:
    """The four calls of S3 that a store makes, in memory."""

    def __init__(self, refusal: Exception | None = None) -> None:
        self.objects: dict[str, bytes] = {}
        self.refusal = refusal

    def put_object(self, *, Bucket, Key, Body, ChecksumSHA256, IfNoneMatch=None):
        self._refuse()
        if IfNoneMatch == "*" and Key in self.objects:
            raise ClientError({"Error": {"Code": "PreconditionFailed"}}, "PutObject")
        self.objects[Key] = Body.read()
        return {}

    def head_object(self, *, Bucket, Key):
        return {"ContentLength": len(self._found(Key, "404"))}

    def get_object(self, *, Bucket, Key):
        import io

        return {"Body": io.BytesIO(self._found(Key, "NoSuchKey"))}

    def _found(self, key, code):
        self._refuse()
        if key not in self.objects:
            raise ClientError({"Error": {"Code": code}}, "GetObject")
        return self.objects[key]

    def _refuse(self):
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture(params=["folder", "bucket"])
def store(request, tmp_path):
    return FolderStore(tmp_path / "store") if request.param == "folder" else S3Store("b", region="us-east-1", client=Bucket())


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"bytes")
    return path


def log():
    import io

    from engine_build.log import Log

    return Log(io.StringIO())


def published(store, built, tmp_path, entry=None):
    entry = built.result.entry if entry is None else entry
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return publish(store, entry, built.store / entry.archive.path, [], scratch, log())


def test_store_gives_what_was_written(store, file, tmp_path):
    assert store.upload(file, "a/b")
    assert (store.read("a/b"), store.size("a/b"), store.download("a/b", tmp_path / "copy")) == (b"bytes", 5, True)
    assert (tmp_path / "copy").read_bytes() == b"bytes"


def test_store_has_nothing_under_another_name(store, tmp_path):
    assert (store.read("a"), store.size("a"), store.download("a", tmp_path / "copy")) == (None, None, False)


def test_store_keeps_the_first_of_two_when_asked(store, file, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"other")
    assert store.upload(file, "a", only_if_absent=True)
    assert not store.upload(other, "a", only_if_absent=True)
    assert store.read("a") == b"bytes"
    assert store.upload(other, "a") and store.read("a") == b"other"


def test_store_is_a_bucket_or_a_folder(tmp_path):
    assert store_at("s3://bucket/", region="us-east-1").place == "s3://bucket"
    assert store_at(str(tmp_path), region="us-east-1").place == str(tmp_path)


@pytest.mark.parametrize(
    ("refusal", "words"),
    [
        (
            ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "PutObject"),
            r"s3://b/x: S3 answers AccessDenied \(no\)",
        ),
        (EndpointConnectionError(endpoint_url="http://nowhere"), "s3://b/x cannot be reached"),
    ],
)
def test_refuses_a_bucket_that_does_not_answer(refusal, words, file):
    with pytest.raises(PublishFailed, match=words):
        S3Store("b", region="us-east-1", client=Bucket(refusal)).upload(file, "x")


def test_refuses_a_folder_store_that_is_a_file(file):
    with pytest.raises(PublishFailed, match="cannot be written: Not a directory"):
        FolderStore(file).upload(file, "a/b")


def test_archive_of_the_same_files_has_the_same_bytes(tmp_path):
    digests = set()
    for name, time in (("one", 1), ("two", 2_000_000)):
        (tmp_path / name / "m/1").mkdir(parents=True)
        for file in ("m/config.pbtxt", "m/1/model.onnx", "manifest.json"):
            (tmp_path / name / file).write_text(file)
            os.utime(tmp_path / name / file, (time, time))
        (tmp_path / name / "manifest.json").chmod(0o600)
        pack(tmp_path / name, tmp_path / f"{name}.tar.gz")
        digests.add(sha256_of(tmp_path / f"{name}.tar.gz"))
    assert len(digests) == 1
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        found = [(each.name, each.mtime, each.uid, each.mode) for each in tar]
    assert found == [(name, 0, 0, 0o644) for name in ("m/1/model.onnx", "m/config.pbtxt", "manifest.json")]


def test_publish_writes_the_record_of_the_archive_last(store, built, tmp_path):
    entry = published(store, built, tmp_path)
    assert entry == built.result.entry == known_engine(store, entry.manifest.engine_key)


def test_publish_that_breaks_before_the_record_is_invisible_and_can_be_finished(built, tmp_path):
    key = built.result.entry.manifest.engine_key
    breaking = BreakingStore(tmp_path / "store", lambda name: name == engine_record_path(key), PublishFailed("gone"))
    with pytest.raises(PublishFailed):
        published(breaking, built, tmp_path)
    sound = FolderStore(tmp_path / "store")
    assert known_engine(sound, key) is None
    assert published(sound, built, tmp_path) == known_engine(sound, key)


def test_two_builds_of_one_key_agree_on_the_first_archive(store, built, tmp_path):
    first = published(store, built, tmp_path)
    other_manifest = first.manifest.model_copy(update={"load_seconds": 99.0})
    other = first.model_copy(update={"manifest": other_manifest})
    assert published(store, built, tmp_path, entry=other) == first
    assert known_engine(store, first.manifest.engine_key) == first


def test_damaged_archive_in_the_store_is_replaced(store, built, tmp_path, file):
    key = built.result.entry.manifest.engine_key
    store.upload(file, engine_archive_path(key))
    assert published(store, built, tmp_path) == built.result.entry
    assert store.size(engine_archive_path(key)) == built.result.entry.archive.size_bytes


def test_record_without_its_archive_is_no_engine(built, tmp_path):
    entry = built.result.entry
    record = tmp_path / "record"
    record.write_bytes(entry_bytes(entry))
    store = FolderStore(tmp_path / "store")
    store.upload(record, engine_record_path(entry.manifest.engine_key))
    assert known_engine(store, entry.manifest.engine_key) is None


def test_refuses_an_archive_of_another_engine(built):
    with pytest.raises(ValueError, match="holds engine"):
        entry_of(built.store / built.result.entry.archive.path, "0" * 20)


def test_refuses_a_source_tree_without_the_backend(tmp_path):
    with pytest.raises(InputRefused, match=f"{BACKEND} is missing from the source tree"):
        backend_file((tmp_path,))


def test_configuration_is_the_golden_one():
    serving = ServingSpec(
        dynamic_batching=DynamicBatchingSpec(preferred_batch_sizes=(4, 8, 64), max_queue_delay_us=100),
        instances_per_gpu=2,
        response_cache=True,
    )
    assert (
        text_embedding_configuration(serving, max_batch_size=8, width=384)
        == """backend: "python"
max_batch_size: 8
input [
  {
    name: "text"
    data_type: TYPE_STRING
    dims: [ 1 ]
  }
]
output [
  {
    name: "embedding"
    data_type: TYPE_FP32
    dims: [ 384 ]
  }
]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
}
instance_group [
  {
    kind: KIND_CPU
    count: 2
  }
]
response_cache {
  enable: true
}
"""
    )


def test_refuses_a_store_of_another_kind():
    with pytest.raises(InputRefused, match=r"--publish file:///tmp/x is no store; allowed: s3://BUCKET"):
        store_at("file:///tmp/x", region="us-east-1")
