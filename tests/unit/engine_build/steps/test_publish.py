"""Publishing and stores."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from engine_build.errors import InputRefused, PublishFailed
from engine_build.packaging.archive import entry_bytes, entry_of, known_engine
from engine_build.steps.publish import publish
from engine_build.store import FolderStore, S3Store, store_at
from onboarding.names import (
    engine_archive_path,
    engine_card_data_path,
    engine_card_path,
    engine_record_path,
)


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
    return (
        FolderStore(tmp_path / "store")
        if request.param == "folder"
        else S3Store("b", region="us-east-1", client=Bucket())
    )


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
    assert (store.read("a/b"), store.size("a/b"), store.download("a/b", tmp_path / "copy")) == (
        b"bytes",
        5,
        True,
    )
    assert (tmp_path / "copy").read_bytes() == b"bytes"


def test_store_has_nothing_under_another_name(store, tmp_path):
    assert (store.read("a"), store.size("a"), store.download("a", tmp_path / "copy")) == (
        None,
        None,
        False,
    )


def test_store_keeps_the_first_of_two_when_asked(store, file, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"other")
    assert store.upload(file, "a", only_if_absent=True)
    assert not store.upload(other, "a", only_if_absent=True)
    assert store.read("a") == b"bytes"
    assert store.upload(other, "a") and store.read("a") == b"other"


class Contested(Bucket):
    """Another build's upload of the same object is under way for the first `times` tries, and then
    whole.
    """

    def __init__(self, times: int) -> None:
        super().__init__()
        self.times = times

    def put_object(self, *, Bucket, Key, Body, ChecksumSHA256, IfNoneMatch=None):
        if self.times > 0:
            self.times -= 1
            if self.times == 0:
                self.objects[Key] = b"the other's"
            raise ClientError(
                {"Error": {"Code": "ConditionalRequestConflict", "Message": "conflict"}},
                "PutObject",
            )
        return super().put_object(
            Bucket=Bucket,
            Key=Key,
            Body=Body,
            ChecksumSHA256=ChecksumSHA256,
            IfNoneMatch=IfNoneMatch,
        )


def test_an_upload_that_another_build_contests_is_tried_again_until_one_is_there(file):
    bucket, naps = Contested(2), []
    store = S3Store("b", region="us-east-1", client=bucket, sleep=naps.append)
    assert store.upload(file, "x", only_if_absent=True) is False
    assert (bucket.objects["x"], naps) == (b"the other's", [1, 2])


def test_refuses_an_upload_that_stays_contested(file):
    store = S3Store("b", region="us-east-1", client=Contested(99), sleep=lambda seconds: None)
    with pytest.raises(PublishFailed, match=r"S3 answers ConditionalRequestConflict \(conflict\)"):
        store.upload(file, "x", only_if_absent=True)


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


def test_publish_writes_the_record_of_the_archive_last(store, built, tmp_path):
    entry = published(store, built, tmp_path)
    assert entry == built.result.entry == known_engine(store, entry.manifest.engine_key)


class Witness(FolderStore):
    """Dies at its nth call, after looking whether an engine is visible that should not be."""

    def __init__(self, folder: Path, dies_at: int, key: str) -> None:
        super().__init__(folder)
        self.calls = 0
        self._dies_at = dies_at
        self._key = key
        self.names: list[str] = []

    def _called(self, name: str) -> None:
        self.calls += 1
        assert (known_engine(FolderStore(self._folder), self._key) is None) or self.names[
            -1
        ] == engine_record_path(self._key)
        if self.calls == self._dies_at:
            raise PublishFailed(f"died at {name}")

    def size(self, name):
        self._called(name)
        return super().size(name)

    def download(self, name, path):
        self._called(name)
        return super().download(name, path)

    def upload(self, path, name, *, only_if_absent=False):
        self._called(name)
        written = super().upload(path, name, only_if_absent=only_if_absent)
        self.names.append(name)
        return written


def publish_all(store, built, tmp_path, networks, cards):
    """A publish of everything there is: networks, archive, card, record."""
    entry = built.result.entry
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return publish(
        store,
        entry,
        built.store / entry.archive.path,
        networks,
        scratch,
        log(),
        lambda found: cards,
    )


def test_publish_that_dies_at_any_call_is_invisible_and_the_next_one_finishes_it(
    built, file, tmp_path
):
    entry = built.result.entry
    key = entry.manifest.engine_key
    networks, cards = (
        [("networks/a", file), ("networks/b", file)],
        [(engine_card_path(key), file), (engine_card_data_path(key), file)],
    )
    whole = Witness(tmp_path / "whole", 0, key)
    publish_all(whole, built, tmp_path, networks, cards)
    assert whole.names[-4:] == [
        entry.archive.path,
        *(name for name, _ in cards),
        engine_record_path(key),
    ]
    for dies_at in range(1, whole.calls + 1):
        folder = tmp_path / f"died-{dies_at}"
        with pytest.raises(PublishFailed, match="died at"):
            publish_all(Witness(folder, dies_at, key), built, tmp_path, networks, cards)
        sound = FolderStore(folder)
        assert known_engine(sound, key) is None
        assert not list(folder.rglob(".part-*"))
        assert (
            publish_all(sound, built, tmp_path, networks, cards)
            == entry
            == known_engine(sound, key)
        )
        assert {
            path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
        } == set(whole.names)


def test_publish_sends_no_network_that_is_there(built, file, tmp_path):
    key = built.result.entry.manifest.engine_key
    store = FolderStore(tmp_path / "store")
    store.upload(file, "networks/a")
    witness = Witness(tmp_path / "store", 0, key)
    publish_all(witness, built, tmp_path, [("networks/a", file), ("networks/b", file)], [])
    assert "networks/a" not in witness.names and "networks/b" in witness.names


def test_card_is_made_of_the_archive_that_is_there(built, tmp_path):
    entry = built.result.entry
    store, scratch = FolderStore(tmp_path / "store"), tmp_path / "scratch"
    scratch.mkdir()
    published(store, built, tmp_path)
    other = entry.model_copy(
        update={"manifest": entry.manifest.model_copy(update={"load_seconds": 99.0})}
    )
    seen = []
    publish(
        store,
        other,
        built.store / entry.archive.path,
        [],
        scratch,
        log(),
        lambda found: seen.append(found) or (),
    )
    assert seen == [entry]


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


def test_refuses_a_store_of_another_kind():
    with pytest.raises(
        InputRefused, match=r"--publish file:///tmp/x is no store; allowed: s3://BUCKET"
    ):
        store_at("file:///tmp/x", region="us-east-1")
