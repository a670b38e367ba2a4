"""The signer of checkpoints as it is deployed, where IAM is evaluated, and S3's own digests."""

from __future__ import annotations

import base64
import hashlib
import json

import pytest

from onboarding import arns, names, signature
from onboarding.text_generation.checkpoint_lock import RECORD_NAME, CheckpointEntry
from stacks.signer_program import function_program
from tests.local_cloud.account import ROOT
from tests.local_cloud.authorized_cloud import authorized_cloud, refusal_code
from tests.local_cloud.builder_roles import (
    QUANTIZER_PROJECT,
    add_role,
    builder_credentials,
    builder_statements,
)
from tests.local_cloud.test_signer import BUCKET, DEV, read, resources
from tests.unit.onboarding.text_generation.entries import CONTENT, entry_of

pytestmark = pytest.mark.local_cloud

KEY = "86" * 10
OWN = function_program(ROOT / "engine_build/signing.py", ROOT / "engine_build/checkpoint_signer.py")


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with authorized_cloud(tmp_path_factory.mktemp("authorized") / "state") as cloud:
        formation = cloud.root("cloudformation", DEV.account)
        formation.create_stack(
            StackName="signing",
            TemplateBody=json.dumps({"Resources": resources(OWN)}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        waiter = formation.get_waiter("stack_create_complete")
        waiter.wait(StackName="signing", WaiterConfig={"Delay": 1})
        add_role(cloud, DEV, QUANTIZER_PROJECT, builder_statements(DEV)[QUANTIZER_PROJECT])
        yield cloud


def builder(cloud):
    return cloud.session("s3", builder_credentials(cloud, DEV, QUANTIZER_PROJECT))


def put(cloud, candidate, content, *, with_digest=True):
    """What a build uploads: files with their sha256, then the record."""
    s3, entry = builder(cloud), entry_of(KEY, content)
    files = {f"checkpoint/{path}": data for path, data in content.items()}
    for path, data in {**files, RECORD_NAME: entry.record}.items():
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        options = {"ChecksumSHA256": digest} if with_digest else {}
        name = names.candidate_path(KEY, candidate, path)
        s3.put_object(Bucket=BUCKET, Key=name, Body=data, IfNoneMatch="*", **options)
    return entry


def sign(cloud, candidate):
    event = {
        "engineKey": KEY,
        "model": "chat",
        "candidate": candidate,
        "source": f"{BUCKET}/sources/{'5' * 64}.zip",
        "commit": "c" * 40,
        "execution": "arn:aws:states:us-east-1:111122223333:execution:roundhouse-dev-builds:1",
    }
    reply = cloud.root("lambda", DEV.account).invoke(
        FunctionName=names.checkpoint_signer(DEV), Payload=json.dumps(event)
    )
    return json.loads(reply["Payload"].read())


def test_checkpoint_is_published_once_and_signed_with_the_environments_key(cloud):
    assert "S3 has no sha256 of it" in _refused_without_digests(cloud)
    entry = put(cloud, "1-0", CONTENT)
    assert sign(cloud, "1-0") == {"status": "signed"}
    for path, data in CONTENT.items():
        assert read(cloud, f"checkpoints/{KEY}/{path}") == data
    record = read(cloud, names.checkpoint_record_path(KEY))
    found = CheckpointEntry.model_validate_json(record)
    assert found.model_copy(update={"signature": None}) == entry
    kms = cloud.root("kms", DEV.account)
    der = kms.get_public_key(KeyId=arns.signing_key_alias(DEV))["PublicKey"]
    signature.verify_statement(
        found.signature, found.signed_sha256, [signature.PublicKey(der)], subject=RECORD_NAME
    )
    assert sign(cloud, "1-0") == {"status": "signed"}
    assert read(cloud, names.checkpoint_record_path(KEY)) == record


def _refused_without_digests(cloud):
    put(cloud, "0-0", CONTENT, with_digest=False)
    return sign(cloud, "0-0").get("reason", "")


def test_build_writes_candidates_alone_and_replaces_none(cloud):
    s3, own = builder(cloud), names.candidate_path(KEY, "9-0", "checkpoint.json")
    fields = {"Bucket": BUCKET, "Body": b"x"}
    once = {**fields, "IfNoneMatch": "*"}
    assert refusal_code(s3.put_object, Key=own, **once) is None
    assert refusal_code(s3.put_object, Key=own, **fields) == "AccessDenied"
    for name in (f"checkpoints/{KEY}/x", f"engines/{KEY}/x", "sources/x", "timing-caches/x"):
        assert refusal_code(s3.put_object, Key=name, **once) == "AccessDenied", name
