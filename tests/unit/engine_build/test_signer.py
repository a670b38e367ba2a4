"""The signers publish what a build left, signed and once, or say why they do not."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import subprocess
import tarfile
from collections import deque
from pathlib import Path
from tempfile import mkdtemp
from types import SimpleNamespace

import pytest

from engine_build.checkpoint_signer import CheckpointSigner
from engine_build.packaging.archive import entry_of, model_repository, pack, repackaged_path
from engine_build.signer import ENVELOPE, MANIFEST, Signer, parameters
from engine_build.signing import Refused, Unfinished, statement
from onboarding import names, signature
from onboarding.lock import LockEntry
from onboarding.manifest import Manifest, RepackagingRecord
from onboarding.text_generation.checkpoint_lock import RECORD_NAME, CheckpointEntry
from tests.fixtures.signer import Signer as Key
from tests.fixtures.signer import provenance_statement
from tests.unit.engine_build.packaging.archives import (
    manifest_without,
    publish_test_archive,
    read_files,
    replace_files,
)
from tests.unit.engine_build.places import Bucket, client_error
from tests.unit.onboarding.text_generation.entries import CONTENT
from tests.unit.onboarding.text_generation.entries import entry_of as checkpoint_entry

ENGINE_KEY = "86" * 10
OTHER_KEY = "89" * 10
BUILDER = "arn:aws:states:us-east-1:111122223333:stateMachine:roundhouse-dev-builds"
EVENT = {
    "engineKey": ENGINE_KEY,
    "model": "embedder",
    "candidate": "0a1b2c3d-0",
    "source": f"b/sources/{'5' * 64}.zip",
    "commit": "c" * 40,
    "execution": f"{BUILDER.replace('stateMachine', 'execution')}:1",
}
ARCHIVE = names.engine_archive_path(ENGINE_KEY)
RECORD = names.engine_record_path(ENGINE_KEY)


class Kms:
    """One key of the openssl command."""

    def __init__(self, folder) -> None:
        self.key = Key()
        self._file = folder / "private.pem"
        self._file.write_bytes(self.key._private)

    def sign(self, *, KeyId, Message, MessageType, SigningAlgorithm):
        assert (KeyId, MessageType) == ("alias/signing", "DIGEST")
        assert (SigningAlgorithm, len(Message)) == ("ECDSA_SHA_256", 32)
        command = ("openssl", "pkeyutl", "-sign", "-inkey", str(self._file))
        done = subprocess.run(command, input=Message, capture_output=True, check=True)
        return {"Signature": done.stdout}

    def get_public_key(self, *, KeyId):
        return {"PublicKey": self.key.key.der}


@pytest.fixture
def cloud(tmp_path):
    """A bucket, a key, and the signer of both; `put` lays a candidate down."""
    bucket, kms = Bucket(), Kms(tmp_path)
    signer = Signer(
        bucket="b", signing_key="alias/signing", builder=BUILDER, s3=bucket, kms=kms,
        sleep=lambda seconds: None,
    )  # fmt: skip

    def publish(**changes):
        signer.publish(EVENT | changes, Path(mkdtemp(dir=tmp_path)))

    def put(archive, candidate=EVENT["candidate"]):
        name = names.candidate_path(ENGINE_KEY, candidate, "model.tar.gz")
        bucket.objects[name] = archive.read_bytes()
        return archive

    return SimpleNamespace(bucket=bucket, kms=kms, publish=publish, put=put)


@pytest.fixture
def archive(tmp_path):
    return publish_test_archive(tmp_path, "8.6", model="embedder", engine_key=ENGINE_KEY)


def files_of(data, tmp_path):
    path = tmp_path / "unpacked.tar.gz"
    path.write_bytes(data)
    return path, read_files(path)


def test_archive_is_published_with_an_envelope_that_the_key_signed(cloud, archive, tmp_path):
    cloud.put(archive)
    cloud.publish()
    path, files = files_of(cloud.bucket.objects[ARCHIVE], tmp_path)
    signed = signature.SignedStatement.from_envelope(files.pop(ENVELOPE))
    assert files == read_files(archive)
    digest = hashlib.sha256(files[MANIFEST]).hexdigest()
    signature.verify_statement(signed, digest, [cloud.kms.key.key])
    entry = LockEntry.model_validate_json(cloud.bucket.objects[RECORD])
    assert entry == entry_of(path, ENGINE_KEY).model_copy(update={"signature": signed})


def test_record_says_where_a_plan_came_from(cloud, archive, tmp_path):
    folder = archive.parent / "archive"
    manifest = Manifest.from_bytes((folder / MANIFEST).read_bytes())
    record = RepackagingRecord(
        engine_key="0" * 20, archive_sha256="1" * 64, builder=manifest.builder
    )
    name = repackaged_path(manifest.engine_file)
    files = model_repository(folder, {name: record.model_dump_json()})  # beside the plan
    packed = manifest.model_copy(update={"files": {**manifest.files, **files}})
    (folder / MANIFEST).write_bytes(packed.to_bytes())
    pack(folder, archive)
    cloud.put(archive)
    cloud.publish()
    entry = LockEntry.model_validate_json(cloud.bucket.objects[RECORD])
    assert entry.repackaged == record
    path, _ = files_of(cloud.bucket.objects[ARCHIVE], tmp_path)
    assert entry_of(path, ENGINE_KEY).repackaged == record


def test_statement_is_of_the_form_that_is_verified(archive):
    manifest = read_files(archive)[MANIFEST]
    payload = statement((MANIFEST, manifest), EVENT, BUILDER, parameters(manifest))
    finished = json.loads(payload)["predicate"]["runDetails"]["metadata"]["finishedOn"]
    assert payload == provenance_statement(
        manifest_sha256=hashlib.sha256(manifest).hexdigest(),
        parameters={"model": "embedder", "engineKey": ENGINE_KEY, "precision": "auto"},
        dependencies=[
            {"uri": f"s3://{EVENT['source']}", "digest": {"sha256": "5" * 64}},
            {"name": "commit", "digest": {"gitCommit": "c" * 40}},
        ],
        builder=BUILDER,
        invocation=EVENT["execution"],
        finished_on=finished,
    )


def test_two_builds_of_one_key_have_one_archive_and_equal_records(cloud, archive, tmp_path):
    (tmp_path / "second").mkdir()
    other = publish_test_archive(
        tmp_path / "second", "8.6", model="embedder", engine_key=ENGINE_KEY, load_seconds=99.0
    )
    cloud.put(archive)
    cloud.publish()
    published = {
        name: data for name, data in cloud.bucket.objects.items() if name.startswith("engines/")
    }
    cloud.put(other, "4e5f6a7b-0")
    cloud.publish(candidate="4e5f6a7b-0")
    cloud.publish(candidate="0-engine-that-was-known-leaves-no-candidate")
    assert published == {
        name: data for name, data in cloud.bucket.objects.items() if name.startswith("engines/")
    }


def test_publish_that_dies_at_any_write_is_invisible_and_the_next_one_finishes_it(cloud, archive):
    cloud.put(archive)
    candidates = dict(cloud.bucket.objects)
    put_object, writes, last = cloud.bucket.put_object, [], [0]

    def dying(**fields):
        writes.append(fields["Key"])
        if len(writes) == last[0]:
            raise client_error("InternalError", "died")
        return put_object(**fields)

    cloud.bucket.put_object = dying
    for last[0] in (1, 2):
        cloud.bucket.objects.clear()
        cloud.bucket.objects.update(candidates)
        writes.clear()
        with pytest.raises(Exception, match="died"):
            cloud.publish()
        assert RECORD not in cloud.bucket.objects
        cloud.publish()
        entry = LockEntry.model_validate_json(cloud.bucket.objects[RECORD])
        digest = hashlib.sha256(cloud.bucket.objects[ARCHIVE]).hexdigest()
        assert entry.archive.sha256 == digest
    assert writes[-1] == RECORD


CONFIG = "embedder/config.pbtxt"
CHANGED = f"{CONFIG} is not the file that its manifest names"


def with_member(name, **fields):
    """A fault: one more member, after all others unless its name is the envelope's."""

    def add(archive, folder):
        files = {**read_files(archive), name: b"more"}
        with tarfile.open(folder / "faulty.tar.gz", "w:gz") as tar:
            for file in sorted(files) if name == ENVELOPE else files:
                member = tarfile.TarInfo(file)
                member.size = len(files[file])
                for field, value in fields.items() if file == name else ():
                    setattr(member, field, value)
                tar.addfile(member, io.BytesIO(files[file]) if member.isreg() else None)
        return folder / "faulty.tar.gz"

    return add


def with_manifest(**fields):
    """A fault: the archive of another engine or model."""
    own = {"model": "embedder", "engine_key": ENGINE_KEY}
    return lambda archive, folder: publish_test_archive(folder, "8.9", **own | fields)


def cut(archive, folder):
    """A fault: the end is missing."""
    (folder / "cut.tar.gz").write_bytes(archive.read_bytes()[:-200])
    return folder / "cut.tar.gz"


def with_files(**files):
    """A fault: other bytes; of the manifest, one that names a file less."""

    def replace(archive, folder):
        less = {MANIFEST: manifest_without(archive, CONFIG)}
        return replace_files(archive, folder / "x", **(files or less))

    return replace


FAULTS = {
    "changed": (CHANGED, with_files(**{CONFIG: b"other"})),
    "missing": (CHANGED, with_files(**{CONFIG: b""})),
    "unnamed": (CHANGED, with_files()),
    "link": ("zz is no regular file", with_member("zz", type=tarfile.SYMTYPE, linkname="/x")),
    "outside": (r"zz/\.\./\.\./x is no path within", with_member("zz/../../x")),
    "absolute": ("/zz is no path within the archive", with_member("zz", path="/zz")),
    "unsorted": ("aa does not come after manifest.json, as names are", with_member("aa")),
    "twice": ("manifest.json does not come after manifest", with_member("zz", path=MANIFEST)),
    "cut": ("it cannot be unpacked", cut),
    "another": (
        f"it holds engine {OTHER_KEY} of embedder, not {ENGINE_KEY} of embedder",
        with_manifest(engine_key=OTHER_KEY),
    ),
    "renamed": (f"engine {ENGINE_KEY} of other, not {ENGINE_KEY}", with_manifest(model="other")),
    "signed": (f"the build packed {ENVELOPE} itself", with_member(ENVELOPE)),
}


@pytest.mark.parametrize("name", FAULTS)
def test_refuses_a_candidate_that_is_not_what_its_manifest_says(name, cloud, archive, tmp_path):
    words, fault = FAULTS[name]
    cloud.put(fault(archive, tmp_path))
    with pytest.raises(Refused, match=words):
        cloud.publish()
    assert not [name for name in cloud.bucket.objects if name.startswith("engines/")]


def test_refuses_an_engine_that_is_there_unsigned(cloud, archive):
    cloud.put(archive)
    cloud.bucket.objects[ARCHIVE] = archive.read_bytes()
    with pytest.raises(Refused, match="is not signed, and nothing is overwritten; delete it"):
        cloud.publish()


def test_refuses_a_record_of_an_archive_that_is_gone(cloud, archive):
    cloud.put(archive)
    cloud.publish()
    del cloud.bucket.objects[ARCHIVE]
    record = cloud.bucket.objects[RECORD]
    with pytest.raises(Refused, match=r"its lock-entry.json is of another archive.*delete both"):
        cloud.publish()
    assert cloud.bucket.objects[RECORD] == record


def test_refuses_a_build_that_left_nothing(cloud):
    with pytest.raises(Refused, match=r"s3://b/candidates/.*: the build left no archive"):
        cloud.publish()


KEY = EVENT["engineKey"]
OWN = EVENT | {"model": "chat"}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class CopyingBucket(Bucket):
    """A bucket that keeps the sha256 of what was uploaded with one, and copies."""

    def __init__(self) -> None:
        super().__init__()
        self.without: set[str] = set()
        self.copies: list[str] = []

    def head_object(self, *, Bucket, Key, ChecksumMode):
        assert ChecksumMode == "ENABLED"
        data = self._object(Key, "404")
        head = {"ContentLength": len(data), "ETag": f'"{sha256(data)}"'}
        if Key not in self.without:
            head["ChecksumSHA256"] = base64.b64encode(hashlib.sha256(data).digest()).decode()
        return head

    def copy_object(
        self, *, Bucket, Key, CopySource, CopySourceIfMatch, ChecksumAlgorithm, TaggingDirective,
        IfNoneMatch,
    ):  # fmt: skip
        assert (ChecksumAlgorithm, TaggingDirective, IfNoneMatch) == ("SHA256", "REPLACE", "*")
        data = self._object(CopySource["Key"], "NoSuchKey")
        if Key in self.objects or CopySourceIfMatch != f'"{sha256(data)}"':
            raise client_error("PreconditionFailed")
        self.objects[Key] = data
        self.copies.append(Key)


@pytest.fixture
def checkpoints(tmp_path):
    """A bucket with a candidate, a key, and the signer of both."""
    bucket, kms, left = CopyingBucket(), Kms(tmp_path), deque()
    signer = CheckpointSigner(
        bucket="b", signing_key="alias/signing", builder=BUILDER, s3=bucket, kms=kms,
        sleep=lambda seconds: None, seconds_left=lambda: left.popleft() if left else 900,
    )  # fmt: skip

    def publish(**changes):
        signer.publish(OWN | changes, Path(mkdtemp(dir=tmp_path)))

    def put(entry, content=CONTENT, candidate=EVENT["candidate"]):
        for path, data in content.items():
            bucket.objects[names.candidate_path(KEY, candidate, f"checkpoint/{path}")] = data
        name = names.candidate_path(KEY, candidate, RECORD_NAME)
        bucket.objects[name] = entry.record

    def set_seconds_left(*seconds):
        left.extend(seconds)

    return SimpleNamespace(
        bucket=bucket, kms=kms, publish=publish, put=put, set_seconds_left=set_seconds_left
    )


def record_of(checkpoints) -> CheckpointEntry:
    name = names.checkpoint_record_path(KEY)
    return CheckpointEntry.model_validate_json(checkpoints.bucket.objects[name])


def test_files_are_copied_and_the_record_is_signed(checkpoints):
    entry = checkpoint_entry(KEY, CONTENT)
    checkpoints.put(entry)
    checkpoints.publish()
    for path, data in CONTENT.items():
        assert checkpoints.bucket.objects[f"checkpoints/{KEY}/{path}"] == data
    found = record_of(checkpoints)
    assert found.model_copy(update={"signature": None}) == entry
    signature.verify_statement(
        found.signature, found.signed_sha256, [checkpoints.kms.key.key], subject=RECORD_NAME
    )
    parameters = json.loads(found.signature.statement)["predicate"]["buildDefinition"]
    assert parameters["externalParameters"] == {
        "model": "chat", "checkpointKey": KEY, "scheme": "int8",
    }  # fmt: skip


def test_publishing_twice_changes_nothing(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    checkpoints.publish()
    before = dict(checkpoints.bucket.objects)
    checkpoints.publish()
    checkpoints.publish(candidate="0a1b2c3d-9")
    assert checkpoints.bucket.objects == before


def test_other_bytes_of_a_second_build_stay_a_candidate(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    checkpoints.publish()
    other = CONTENT | {"model.safetensors": b"others!"}
    checkpoints.put(checkpoint_entry(KEY, other), other, "0a1b2c3d-9")
    checkpoints.publish(candidate="0a1b2c3d-9")
    assert record_of(checkpoints).files == checkpoint_entry(KEY, CONTENT).files
    del checkpoints.bucket.objects[f"checkpoints/{KEY}/config.json"]
    with pytest.raises(Refused, match=r"config\.json: is gone.*delete that record"):
        checkpoints.publish(candidate="0a1b2c3d-9")


def test_file_that_is_gone_is_copied_anew(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    checkpoints.publish()
    del checkpoints.bucket.objects[f"checkpoints/{KEY}/config.json"]
    checkpoints.publish()
    assert f"checkpoints/{KEY}/config.json" in checkpoints.bucket.objects


def test_copies_go_on_in_the_next_call_and_none_begins_that_may_outlast_the_function(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    checkpoints.set_seconds_left(900, 449, 449)
    with pytest.raises(Unfinished):
        checkpoints.publish()
    assert len(checkpoints.bucket.copies) == 1
    assert names.checkpoint_record_path(KEY) not in checkpoints.bucket.objects
    # What is there is looked at alone, which takes no time.
    checkpoints.set_seconds_left(900, 900, 449)
    with pytest.raises(Unfinished):
        checkpoints.publish()
    checkpoints.publish()
    assert sorted(checkpoints.bucket.copies) == sorted(
        f"checkpoints/{KEY}/{path}" for path in CONTENT
    )
    assert record_of(checkpoints).signature is not None


def test_refuses_where_no_call_would_ever_copy_a_file(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    checkpoints.set_seconds_left(*[449] * 3)
    with pytest.raises(Refused, match="give the function more time"):
        checkpoints.publish()


def test_checkpoint_that_the_gate_refused_has_a_record_alone(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT, accepted=False, reason="KL 0.7 is above 0.1"))
    checkpoints.publish()
    assert not checkpoints.bucket.copies and record_of(checkpoints).reason == "KL 0.7 is above 0.1"


def change(**fields):
    return lambda record: record | fields


def with_file(**fields):
    def alter(record):
        file = record["files"][0] | fields
        line = f"{file['sha256']}  {file['path']}\n"
        digest = hashlib.sha256(line.encode()).hexdigest()
        return record | {"files": [file], "files_sha256": digest}

    return alter


def with_twice_the_files(record):
    return record | {"files": record["files"] * 2}


@pytest.mark.parametrize(
    ("alter", "message"),
    [
        (change(model="other"), f"of checkpoint {KEY} of other, not"),
        (change(prefix="engines/x/"), "as builds write it"),
        (change(accepted="yes"), "as builds write it"),
        (change(scheme=3), "as builds write it"),
        (change(files_sha256="0" * 64), "as builds write it"),
        (with_twice_the_files, "as builds write it"),
        (with_file(path="../config.json"), "no path within the checkpoint"),
        (with_file(path="/config.json"), "no path within the checkpoint"),
        (with_file(path="a//b"), "no path within the checkpoint"),
        (with_file(sha256="zz"), "is no record"),
        (with_file(size_bytes=5_000_000_001), "save the checkpoint in smaller files"),
        (with_file(size_bytes=1), "the record says"),
        (with_file(sha256="0" * 64), "and the record says 000000000000…"),
        (with_file(path="none"), "is missing, which the record names"),
    ],
)
def test_refuses_a_record_that_is_not_what_the_build_left(checkpoints, alter, message):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    name = names.candidate_path(KEY, OWN["candidate"], RECORD_NAME)
    record = alter(json.loads(checkpoints.bucket.objects[name]))
    checkpoints.bucket.objects[name] = signature.canonical_json(record)
    with pytest.raises(Refused, match=message):
        checkpoints.publish()
    assert names.checkpoint_record_path(KEY) not in checkpoints.bucket.objects


def test_refuses_a_file_without_a_digest_and_another_file_that_is_there(checkpoints):
    checkpoints.put(checkpoint_entry(KEY, CONTENT))
    source = names.candidate_path(KEY, OWN["candidate"], "checkpoint/config.json")
    checkpoints.bucket.without.add(source)
    with pytest.raises(Refused, match="S3 has no sha256 of it"):
        checkpoints.publish()
    checkpoints.bucket.without.clear()
    checkpoints.bucket.objects[f"checkpoints/{KEY}/config.json"] = b"[]"
    with pytest.raises(Refused, match="nothing is overwritten"):
        checkpoints.publish()


def test_refuses_a_build_that_left_nothing_and_one_that_is_none(checkpoints):
    with pytest.raises(Refused, match=f"the build left no {RECORD_NAME}"):
        checkpoints.publish()
    for change in ({"candidate": "../x"}, {"engineKey": "../x"}, {"candidate": "a/b"}):
        with pytest.raises(Refused, match="are no engine key and candidate of a build"):
            checkpoints.publish(**change)
