"""Engines that no lock names, in the local cloud's S3.

Marked, taken back, and never one that is named or deployed.
"""

from __future__ import annotations

import base64
import hashlib
import json
from datetime import UTC, datetime, timedelta

import pytest

from onboarding.fault import FaultsError
from onboarding.lock import read_lock, write_lock_entry
from onboarding.names import UNREFERENCED_TAG, artifact_bucket
from roundhouse.deploy import prune as tags
from roundhouse.deploy.prune import Verdict, prune
from tests.local_cloud.tiny_session import deploy_all, sound_network
from tests.unit.onboarding.text_generation.entries import checkpoint_entry

pytestmark = pytest.mark.local_cloud

LOST, OTHER_NETWORK = "0123456789abcdef0123", "fedcba9876543210fedc"
CHECKPOINT = "00112233445566778899"
LISTED = ("engines/", "networks/", "checkpoints/")
FILES = {
    f"engines/{LOST}/model.tar.gz": b"an engine",
    f"engines/{LOST}/card.html": b"<p>card</p>",
    f"engines/{LOST}/lock-entry.json": json.dumps({"manifest": {"model": "gone-model"}}).encode(),
    f"networks/{OTHER_NETWORK}/network.json": b"{}",
    f"checkpoints/{CHECKPOINT}/config.json": b"{}",
    f"checkpoints/{CHECKPOINT}/model.safetensors": b"weights",
    f"checkpoints/{CHECKPOINT}.json": b'{"model": "gone-chat"}',
}


@pytest.fixture(scope="module", autouse=True)
def deployed(tiny):
    deploy_all(tiny.start())


@pytest.fixture
def session(tiny):
    """The session, with an engine and a network in its bucket that nobody knows; none of it
    marked.
    """
    session = tiny.start()
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    for name, data in FILES.items():
        s3.put_object(
            Bucket=bucket,
            Key=name,
            Body=data,
            ContentType="text/html" if name.endswith("html") else "binary/octet-stream",
            ChecksumSHA256=base64.b64encode(hashlib.sha256(data).digest()).decode(),
        )
    tags.keep(s3, bucket, LISTED)
    return session


def pruned(session, *, days=31):
    def clock():
        return datetime.now(UTC) + timedelta(days=days)

    return prune(session, older_than_days=30, dry_run=False, clock=clock)


def marks(session):
    """Names of the objects that bear the mark, with their times."""
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    objects = [stored for prefix in LISTED for stored in tags.objects_under(s3, bucket, prefix)]
    return {
        item.name: item.modified for item in tags.with_marks(s3, bucket, objects) if item.is_marked
    }


def verdicts(found):
    return {item.stored.key: item.verdict for item in found.found}


def own_engine(tiny):
    (key,) = read_lock(tiny.lock.parent, "tiny").engines
    return key


def test_marks_what_no_lock_names_and_nothing_else(tiny, session):
    found = pruned(session)
    assert set(marks(session)) == set(FILES)
    assert verdicts(found)[LOST] is verdicts(found)[OTHER_NETWORK] is Verdict.marked
    assert verdicts(found)[own_engine(tiny)] is Verdict.named
    assert verdicts(found)[CHECKPOINT] is Verdict.marked
    models = {item.model for item in found.of(Verdict.marked)}
    assert models == {"gone-model", "gone-chat", None}


def test_a_checkpoint_that_a_lock_or_a_candidate_names_is_left_alone(tiny, session):
    entry = checkpoint_entry(CHECKPOINT, model="forgotten")
    lock = write_lock_entry(tiny.lock.parent, "forgotten", entry)
    try:
        assert verdicts(pruned(session))[CHECKPOINT] is Verdict.named
    finally:
        lock.unlink()
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    candidate = {"Bucket": bucket, "Key": f"candidates/{CHECKPOINT}/1-0/checkpoint.json"}
    s3.put_object(**candidate, Body=b"{}")
    try:
        assert verdicts(pruned(session))[CHECKPOINT] is Verdict.candidate
    finally:
        s3.delete_object(**candidate)
    assert not any(CHECKPOINT in name for name in marks(session))
    pruned(session)
    write_lock_entry(tiny.lock.parent, "forgotten", entry)
    try:
        assert verdicts(pruned(session))[CHECKPOINT] is Verdict.taken_back
    finally:
        lock.unlink()
    assert not any(CHECKPOINT in name for name in marks(session))


def test_a_mark_begins_the_days_anew_and_keeps_bytes_tags_and_sha256(session):
    """S3 deletes by the day an object was made: without a copy an old engine would go at once."""
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    page = {"Bucket": bucket, "Key": f"engines/{LOST}/card.html"}
    own = {"Key": "team", "Value": "a b"}
    s3.put_object_tagging(**page, Tagging={"TagSet": [own]})
    objects = tags.objects_under(s3, bucket, f"engines/{LOST}/")
    before = {item.name: item.modified for item in objects}

    def versions():
        return len(s3.list_object_versions(Bucket=bucket, Prefix=page["Key"])["Versions"])

    count = versions()
    pruned(session)
    after = marks(session)
    assert all(after[name] >= before[name] for name in before)
    answer = s3.get_object(**page)
    assert (answer["Body"].read(), answer["ContentType"]) == (b"<p>card</p>", "text/html")
    tag_set = s3.get_object_tagging(**page)["TagSet"]
    found = {tag["Key"]: tag["Value"] for tag in tag_set}
    assert found == {own["Key"]: own["Value"], UNREFERENCED_TAG[0]: UNREFERENCED_TAG[1]}
    assert versions() == count + 1
    name = f"checkpoints/{CHECKPOINT}/model.safetensors"
    head = s3.head_object(Bucket=bucket, Key=name, ChecksumMode="ENABLED")
    assert base64.b64decode(head["ChecksumSHA256"]) == hashlib.sha256(FILES[name]).digest()


def test_pruning_takes_the_mark_off_what_a_lock_names_again(tiny, session):
    s3, bucket = session.clients("s3"), artifact_bucket(session.environment)
    prefix = f"engines/{own_engine(tiny)}/"
    tags.mark(s3, bucket, tags.objects_under(s3, bucket, prefix))
    assert all(name.startswith(prefix) for name in marks(session)) and marks(session)
    found = pruned(session, days=0)
    assert marks(session) == {}
    assert verdicts(found)[own_engine(tiny)] is Verdict.taken_back


def test_an_engine_that_another_branch_deployed_is_left_alone(tiny, session):
    lock, deployed = tiny.lock.read_bytes(), own_engine(tiny)
    tiny.lock.unlink()
    tiny.write_model(sound_network(), precision="int8")
    try:
        found = pruned(session, days=400)
    finally:
        tiny.write_model(sound_network())
        tiny.lock.write_bytes(lock)
    assert verdicts(found)[deployed] is Verdict.deployed
    assert not any(deployed in name for name in marks(session))


@pytest.mark.parametrize(
    "broken",
    ["build/local/locks/tiny.lock.yaml", "build/local/locks/new.lock.yaml", "models/tiny.yaml"],
)
def test_refuses_to_mark_anything_while_a_file_cannot_be_read(tiny, session, broken):
    path = tiny.paths.tree / broken
    kept = path.read_bytes() if path.exists() else None
    path.write_text("engines: [")
    try:
        with pytest.raises(FaultsError, match=path.name):
            pruned(session, days=400)
    finally:
        path.unlink()
        if kept is not None:
            path.write_bytes(kept)
    assert marks(session) == {}
