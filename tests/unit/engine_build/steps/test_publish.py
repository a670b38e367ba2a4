"""Publishing and stores."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from botocore.exceptions import EndpointConnectionError

from engine_build.errors import InputRefused, PublishFailed
from engine_build.log import Log
from engine_build.packaging.archive import entry_bytes, known_engine
from engine_build.steps.publish import publish, publish_candidate
from engine_build.store import FolderStore, S3Store, store_at
from onboarding.names import (
    candidate_path,
    engine_archive_path,
    engine_record_path,
)
from tests.unit.engine_build.bucket import Bucket, client_error


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


def test_store_is_a_bucket_or_a_folder(tmp_path):
    assert store_at("s3://bucket/", region="us-east-1").place == "s3://bucket"
    assert store_at(str(tmp_path), region="us-east-1").place == str(tmp_path)
    words = r"--publish file:///tmp/x is no store; allowed: s3://BUCKET"
    with pytest.raises(InputRefused, match=words):
        store_at("file:///tmp/x", region="us-east-1")


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


def test_publish_writes_the_record_of_the_archive_last(store, send, entry):
    assert send(store) == entry == known_engine(store, entry.manifest.engine_key)


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


def test_record_without_its_archive_is_no_engine(entry, tmp_path):
    record, store = tmp_path / "record", FolderStore(tmp_path / "store")
    record.write_bytes(entry_bytes(entry))
    store.upload(record, engine_record_path(entry.manifest.engine_key))
    assert known_engine(store, entry.manifest.engine_key) is None
