"""The signer as it is deployed, where IAM is evaluated: its program, KMS, the roles of builds."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from onboarding import arns, names, signature
from onboarding.lock import LockEntry
from roundhouse_cdk.builds.signing import signing_key_statements
from stacks.signer_program import function_program
from tests.local_cloud.account import ROOT
from tests.local_cloud.authorized_cloud import authorized_cloud, refusal_code
from tests.local_cloud.builder_roles import JOB, PROJECT, add_builders, builder_credentials
from tests.synth.deployments import environment
from tests.synth.pipeline import PROGRAMS, pipeline_resources
from tests.unit.onboarding.manifests import lock_entry

pytestmark = pytest.mark.local_cloud

DEV = environment("dev")
BUCKET = names.artifact_bucket(DEV)
PROGRAM = function_program(ROOT / "engine_build/signing.py", ROOT / "engine_build/signer.py")


SIGNER_IDS = ("Signer", "CheckpointSigner", "SignerRole", "SignerLogs", "CheckpointSignerLogs")


def resources(checkpoint_program=None):
    """What signing needs of foundation and builds."""
    engines, checkpoints = (
        None if program is None else replace(PROGRAMS, signer=program)
        for program in (PROGRAM, checkpoint_program)
    )
    builds = pipeline_resources(DEV, engines, checkpoints)
    policy = {"Version": "2012-10-17", "Statement": signing_key_statements(DEV)}
    key = {"KeySpec": "ECC_NIST_P256", "KeyUsage": "SIGN_VERIFY", "KeyPolicy": policy}
    alias = {"AliasName": arns.signing_key_alias(DEV), "TargetKeyId": {"Ref": "Key"}}
    return {
        "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": BUCKET}},
        "Key": {"Type": "AWS::KMS::Key", "Properties": key},
        "Alias": {"Type": "AWS::KMS::Alias", "Properties": alias},
        **{name: builds[name] for name in SIGNER_IDS if name in builds},
    }


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with authorized_cloud(tmp_path_factory.mktemp("authorized") / "state") as cloud:
        formation = cloud.root("cloudformation", DEV.account)
        formation.create_stack(
            StackName="signing",
            TemplateBody=json.dumps({"Resources": resources()}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        waiter = formation.get_waiter("stack_create_complete")
        waiter.wait(StackName="signing", WaiterConfig={"Delay": 1})
        add_builders(cloud, DEV)
        yield cloud


def archive(key, load_seconds=0.5):
    """An archive of one file as a build leaves it."""
    files = {"model.onnx": b"weights"}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    changes = {"files": digests, "load_seconds": load_seconds}
    manifest = lock_entry("tiny", key).manifest.model_copy(update=changes)
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tar:
        for name, data in sorted({**files, "manifest.json": manifest.to_bytes()}.items()):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return content.getvalue()


def put_candidate(cloud, key, candidate, data):
    path = names.candidate_path(key, candidate, "model.tar.gz")
    s3 = cloud.session("s3", builder_credentials(cloud, DEV, PROJECT))
    s3.put_object(Bucket=BUCKET, Key=path, Body=data, IfNoneMatch="*")


def sign(cloud, key, candidate):
    """The signer's answer."""
    event = {
        "engineKey": key,
        "model": "tiny",
        "candidate": candidate,
        "source": f"{BUCKET}/sources/{'5' * 64}.zip",
        "commit": "c" * 40,
        "execution": "arn:aws:states:us-east-1:111122223333:execution:roundhouse-dev-builds:1",
    }
    reply = cloud.root("lambda", DEV.account).invoke(
        FunctionName=names.signer(DEV), Payload=json.dumps(event)
    )
    return json.loads(reply["Payload"].read())


def read(cloud, path):
    return cloud.root("s3", DEV.account).get_object(Bucket=BUCKET, Key=path)["Body"].read()


def test_candidate_of_a_builder_becomes_an_engine_that_the_environments_key_signed(cloud):
    key = "a" * 20
    put_candidate(cloud, key, "0-0", archive(key))
    assert sign(cloud, key, "0-0") == {"status": "signed"}
    entry = LockEntry.model_validate_json(read(cloud, names.engine_record_path(key)))
    data = read(cloud, names.engine_archive_path(key))
    assert entry.archive.sha256 == hashlib.sha256(data).hexdigest()
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        envelope = tar.extractfile(signature.ENVELOPE_NAME).read()
    assert entry.signature == signature.SignedStatement.from_envelope(envelope)
    kms = cloud.root("kms", DEV.account)
    der = kms.get_public_key(KeyId=arns.signing_key_alias(DEV))["PublicKey"]
    signers = [signature.PublicKey(der)]
    signature.verify_statement(entry.signature, entry.archive.manifest_sha256, signers)


def test_two_builds_of_one_key_that_are_signed_at_once_have_one_archive(cloud):
    key = "b" * 20
    for index in range(2):
        put_candidate(cloud, key, f"{index}-0", archive(key, load_seconds=index))
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda index: sign(cloud, key, f"{index}-0"), range(2)))
    assert answers == [{"status": "signed"}] * 2
    entry = LockEntry.model_validate_json(read(cloud, names.engine_record_path(key)))
    data = read(cloud, names.engine_archive_path(key))
    assert entry.archive.sha256 == hashlib.sha256(data).hexdigest()


def test_refuses_a_candidate_whose_file_was_changed(cloud):
    key = "c" * 20
    data = archive("d" * 20)
    put_candidate(cloud, key, "0-0", data)
    answer = sign(cloud, key, "0-0")
    assert answer["status"] == "refused"
    assert f"holds engine {'d' * 20} of tiny, not {key} of tiny" in answer["reason"]
    code = refusal_code(read, cloud, names.engine_archive_path(key))
    assert code == "NoSuchKey"


def test_nobody_but_the_signer_signs(cloud):
    """An administrator of IAM too would have to become the signer, or change the key's policy."""
    statement = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    document = {"Version": "2012-10-17", "Statement": [statement]}
    iam = cloud.root("iam", DEV.account)
    iam.put_role_policy(RoleName=JOB, PolicyName="all", PolicyDocument=json.dumps(document))
    kms = cloud.session("kms", builder_credentials(cloud, DEV, JOB))
    call = {
        "KeyId": arns.signing_key_alias(DEV),
        "Message": b"1" * 32,
        "MessageType": "DIGEST",
        "SigningAlgorithm": "ECDSA_SHA_256",
    }
    try:
        assert refusal_code(kms.sign, **call) == "AccessDeniedException"
    finally:
        iam.delete_role_policy(RoleName=JOB, PolicyName="all")
