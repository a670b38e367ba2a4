"""The signer of checkpoints copies what a build left, by S3's own digests, or says why not."""

from __future__ import annotations

import base64
import hashlib
import json
from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from engine_build.checkpoint_signer import CheckpointSigner
from engine_build.signing import Refused, Unfinished
from onboarding import names, signature
from onboarding.text_generation.checkpoint_lock import RECORD_NAME, CheckpointEntry
from stacks.signer_program import function_program
from tests.unit.engine_build.bucket import Bucket, client_error
from tests.unit.engine_build.test_signer import BUILDER, EVENT, Kms
from tests.unit.onboarding.text_generation.entries import CONTENT, entry_of

pytestmark = pytest.mark.unit

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
def cloud(tmp_path):
    """A bucket with a candidate, a key, and the signer of both."""
    bucket, kms, left = CopyingBucket(), Kms(tmp_path), deque()
    signer = CheckpointSigner(
        bucket="b", signing_key="alias/signing", builder=BUILDER, s3=bucket, kms=kms,
        sleep=lambda seconds: None, seconds_left=lambda: left.popleft() if left else 900,
    )  # fmt: skip
    count = iter(range(100))

    def publish(**changes):
        folder = tmp_path / f"work-{next(count)}"
        folder.mkdir()
        signer.publish(OWN | changes, folder)

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


def record_of(cloud) -> CheckpointEntry:
    name = names.checkpoint_record_path(KEY)
    return CheckpointEntry.model_validate_json(cloud.bucket.objects[name])


def test_files_are_copied_and_the_record_is_signed(cloud):
    entry = entry_of(KEY, CONTENT)
    cloud.put(entry)
    cloud.publish()
    for path, data in CONTENT.items():
        assert cloud.bucket.objects[f"checkpoints/{KEY}/{path}"] == data
    found = record_of(cloud)
    assert found.model_copy(update={"signature": None}) == entry
    signature.verify_statement(
        found.signature, found.signed_sha256, [cloud.kms.key.key], subject=RECORD_NAME
    )
    parameters = json.loads(found.signature.statement)["predicate"]["buildDefinition"]
    assert parameters["externalParameters"] == {
        "model": "chat", "checkpointKey": KEY, "scheme": "int8",
    }  # fmt: skip


def test_publishing_twice_changes_nothing(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    cloud.publish()
    before = dict(cloud.bucket.objects)
    cloud.publish()
    cloud.publish(candidate="0a1b2c3d-9")
    assert cloud.bucket.objects == before


def test_other_bytes_of_a_second_build_stay_a_candidate(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    cloud.publish()
    other = CONTENT | {"model.safetensors": b"others!"}
    cloud.put(entry_of(KEY, other), other, "0a1b2c3d-9")
    cloud.publish(candidate="0a1b2c3d-9")
    assert record_of(cloud).files == entry_of(KEY, CONTENT).files
    del cloud.bucket.objects[f"checkpoints/{KEY}/config.json"]
    with pytest.raises(Refused, match=r"config\.json: is gone.*delete that record"):
        cloud.publish(candidate="0a1b2c3d-9")


def test_record_with_the_digest_of_a_published_one_adds_no_files_to_it(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    cloud.publish()
    before = dict(cloud.bucket.objects)
    added = {"chat_template.jinja": b"other"}
    published = entry_of(KEY, CONTENT).files_sha256
    entry = entry_of(KEY, added).model_copy(update={"files_sha256": published})
    cloud.put(entry, added, "0a1b2c3d-9")
    with pytest.raises(Refused, match="as builds write it"):
        cloud.publish(candidate="0a1b2c3d-9")
    assert not {name for name in cloud.bucket.objects if "jinja" in name} - {
        name for name in cloud.bucket.objects if name.startswith("candidates/")
    }
    assert {name: cloud.bucket.objects[name] for name in before} == before


def test_file_that_is_gone_is_copied_anew(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    cloud.publish()
    del cloud.bucket.objects[f"checkpoints/{KEY}/config.json"]
    cloud.publish()
    assert f"checkpoints/{KEY}/config.json" in cloud.bucket.objects


def test_copies_go_on_in_the_next_call_and_none_begins_that_may_outlast_the_function(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    cloud.set_seconds_left(900, 449, 449)
    with pytest.raises(Unfinished):
        cloud.publish()
    assert len(cloud.bucket.copies) == 1
    assert names.checkpoint_record_path(KEY) not in cloud.bucket.objects
    # What is there is looked at alone, which takes no time.
    cloud.set_seconds_left(900, 900, 449)
    with pytest.raises(Unfinished):
        cloud.publish()
    cloud.publish()
    assert sorted(cloud.bucket.copies) == sorted(f"checkpoints/{KEY}/{path}" for path in CONTENT)
    assert record_of(cloud).signature is not None


def test_refuses_where_no_call_would_ever_copy_a_file(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    cloud.set_seconds_left(*[449] * 3)
    with pytest.raises(Refused, match="give the function more time"):
        cloud.publish()


def test_checkpoint_that_the_gate_refused_has_a_record_alone(cloud):
    cloud.put(entry_of(KEY, CONTENT, accepted=False, reason="KL 0.7 is above 0.1"))
    cloud.publish()
    assert not cloud.bucket.copies and record_of(cloud).reason == "KL 0.7 is above 0.1"


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
def test_refuses_a_record_that_is_not_what_the_build_left(cloud, alter, message):
    cloud.put(entry_of(KEY, CONTENT))
    name = names.candidate_path(KEY, OWN["candidate"], RECORD_NAME)
    record = alter(json.loads(cloud.bucket.objects[name]))
    cloud.bucket.objects[name] = signature.canonical_json(record)
    with pytest.raises(Refused, match=message):
        cloud.publish()
    assert names.checkpoint_record_path(KEY) not in cloud.bucket.objects


def test_refuses_a_file_without_a_digest_and_another_file_that_is_there(cloud):
    cloud.put(entry_of(KEY, CONTENT))
    source = names.candidate_path(KEY, OWN["candidate"], "checkpoint/config.json")
    cloud.bucket.without.add(source)
    with pytest.raises(Refused, match="S3 has no sha256 of it"):
        cloud.publish()
    cloud.bucket.without.clear()
    cloud.bucket.objects[f"checkpoints/{KEY}/config.json"] = b"[]"
    with pytest.raises(Refused, match="nothing is overwritten"):
        cloud.publish()


def test_refuses_a_build_that_left_nothing_and_one_that_is_none(cloud):
    with pytest.raises(Refused, match=f"the build left no {RECORD_NAME}"):
        cloud.publish()
    for change in ({"candidate": "../x"}, {"engineKey": "../x"}, {"candidate": "a/b"}):
        with pytest.raises(Refused, match="are no engine key and candidate of a build"):
            cloud.publish(**change)


@pytest.mark.parametrize("name", ["signer.py", "checkpoint_signer.py"])
def test_function_is_one_program_of_two_files(name):
    folder = Path(__file__).parents[3] / "engine_build"
    text = function_program(folder / "signing.py", folder / name)
    values: dict[str, object] = {"__name__": __name__}
    exec(compile(text, "index.py", "exec"), values)
    assert callable(values["handler"]) and "engine_build" not in text
