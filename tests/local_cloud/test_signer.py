"""The signers as they are deployed, where IAM is evaluated: programs, KMS, the roles of builds."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from local_cloud import lifecycle
from onboarding import arns, names, signature
from onboarding.lock import LockEntry
from onboarding.text_generation.checkpoint_lock import RECORD_NAME, CheckpointEntry
from roundhouse_cdk.build_project import CPU, QUANTIZER_ROUTE
from roundhouse_cdk.build_roles import (
    job_statements,
    project_statements,
    signing_key_statements,
)
from stacks.environment_stage import function_program
from tests.local_cloud.account import ROOT
from tests.synth.deployments import environment
from tests.synth.pipeline import PROGRAMS, pipeline_resources
from tests.unit.onboarding.manifests import lock_entry
from tests.unit.onboarding.text_generation.entries import CONTENT, entry_of

pytestmark = pytest.mark.local_cloud

CONFIG = Config(retries={"max_attempts": 1}, proxies={}, parameter_validation=False)
DEV = environment("dev")
BUCKET = names.artifact_bucket(DEV)
PROJECT, JOB, QUANTIZER_PROJECT = "build-project", "training-job", "quantizer-project"
BUILDERS = {
    PROJECT: project_statements(DEV, CPU),
    JOB: job_statements(DEV, CPU.image),
    QUANTIZER_PROJECT: project_statements(DEV, QUANTIZER_ROUTE),
}
ROOT_ARN = f"arn:aws:iam::{DEV.account}:root"


class AuthorizedCloud:
    """One account of a cloud; its own id is its root's access key."""

    def __init__(self, url):
        self.url = url

    def root(self, service):
        """A client of the account's root."""
        return self._client(service, aws_access_key_id=DEV.account, aws_secret_access_key="local")

    def session(self, service, role):
        """A client of a builder's session."""
        arn = f"arn:aws:iam::{DEV.account}:role/{role}"
        reply = self.root("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
        return self._client(
            service,
            aws_access_key_id=reply["AccessKeyId"],
            aws_secret_access_key=reply["SecretAccessKey"],
            aws_session_token=reply["SessionToken"],
        )

    def add_builders(self):
        """Make a role of each kind of builder, which the account itself may take."""
        iam = self.root("iam")
        trust = {"Effect": "Allow", "Principal": {"AWS": ROOT_ARN}, "Action": "sts:AssumeRole"}
        for name, own in BUILDERS.items():
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=document([trust]))
            iam.put_role_policy(
                RoleName=name, PolicyName="exact", PolicyDocument=document(list(own))
            )

    def _client(self, service, **keys):
        return boto3.client(
            service, endpoint_url=self.url, region_name=DEV.region, config=CONFIG, **keys
        )


def document(statements):
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def refusal_code(call, *arguments, **fields):
    """The error code of a call; None of one that is allowed."""
    try:
        call(*arguments, **fields)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


ENGINES, CHECKPOINTS = (
    replace(PROGRAMS, signer=function_program(ROOT / "engine_build/signing.py", ROOT / path))
    for path in ("engine_build/signer.py", "engine_build/checkpoint_signer.py")
)
SIGNER_IDS = ("Signer", "CheckpointSigner", "SignerRole", "SignerLogs", "CheckpointSignerLogs")


def resources():
    """What signing needs of foundation and builds."""
    builds = pipeline_resources(DEV, ENGINES, CHECKPOINTS)
    policy = {"Version": "2012-10-17", "Statement": signing_key_statements(DEV)}
    key = {"KeySpec": "ECC_NIST_P256", "KeyUsage": "SIGN_VERIFY", "KeyPolicy": policy}
    alias = {"AliasName": arns.signing_key_alias(DEV), "TargetKeyId": {"Ref": "Key"}}
    return {
        "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"BucketName": BUCKET}},
        "Key": {"Type": "AWS::KMS::Key", "Properties": key},
        "Alias": {"Type": "AWS::KMS::Alias", "Properties": alias},
        **{name: builds[name] for name in SIGNER_IDS},
    }


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A local cloud that evaluates policies, with the signers and the builders' roles."""
    state = tmp_path_factory.mktemp("authorized") / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTH", "true")
        address = lifecycle.start(ROOT, state)
    try:
        cloud = AuthorizedCloud(address.endpoint_url)
        formation = cloud.root("cloudformation")
        formation.create_stack(
            StackName="signing",
            TemplateBody=json.dumps({"Resources": resources()}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        waiter = formation.get_waiter("stack_create_complete")
        waiter.wait(StackName="signing", WaiterConfig={"Delay": 1})
        cloud.add_builders()
        yield cloud
    finally:
        lifecycle.stop(state)


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
    s3 = cloud.session("s3", PROJECT)
    s3.put_object(Bucket=BUCKET, Key=path, Body=data, IfNoneMatch="*")


def sign(cloud, key, candidate, model="tiny", signer=names.signer):
    """The signer's answer."""
    event = {
        "engineKey": key,
        "model": model,
        "candidate": candidate,
        "source": f"{BUCKET}/sources/{'5' * 64}.zip",
        "commit": "c" * 40,
        "execution": "arn:aws:states:us-east-1:111122223333:execution:roundhouse-dev-builds:1",
    }
    reply = cloud.root("lambda").invoke(FunctionName=signer(DEV), Payload=json.dumps(event))
    return json.loads(reply["Payload"].read())


def read(cloud, path):
    return cloud.root("s3").get_object(Bucket=BUCKET, Key=path)["Body"].read()


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
    signature.verify_statement(entry.signature, entry.archive.manifest_sha256, own_key(cloud))


def own_key(cloud):
    """The environment's signer, by the key's own answer."""
    kms = cloud.root("kms")
    return [signature.PublicKey(kms.get_public_key(KeyId=arns.signing_key_alias(DEV))["PublicKey"])]


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
    everything = document([{"Effect": "Allow", "Action": "*", "Resource": "*"}])
    iam = cloud.root("iam")
    iam.put_role_policy(RoleName=JOB, PolicyName="all", PolicyDocument=everything)
    kms = cloud.session("kms", JOB)
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


CHECKPOINT = "86" * 10


def put_checkpoint(cloud, candidate, *, with_digest):
    """What a build uploads: files with their sha256, then the record."""
    s3 = cloud.session("s3", QUANTIZER_PROJECT)
    entry = entry_of(CHECKPOINT, CONTENT)
    files = {f"checkpoint/{path}": data for path, data in CONTENT.items()}
    for path, data in {**files, RECORD_NAME: entry.record}.items():
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        options = {"ChecksumSHA256": digest} if with_digest else {}
        name = names.candidate_path(CHECKPOINT, candidate, path)
        s3.put_object(Bucket=BUCKET, Key=name, Body=data, IfNoneMatch="*", **options)
    return entry


def test_checkpoint_is_published_once_by_s3s_digests_and_signed_with_the_environments_key(cloud):
    def signed(candidate):
        return sign(cloud, CHECKPOINT, candidate, "chat", names.checkpoint_signer)

    put_checkpoint(cloud, "0-0", with_digest=False)
    assert "S3 has no sha256 of it" in signed("0-0")["reason"]
    entry = put_checkpoint(cloud, "1-0", with_digest=True)
    assert signed("1-0") == {"status": "signed"}
    for path, data in CONTENT.items():
        assert read(cloud, f"checkpoints/{CHECKPOINT}/{path}") == data
    record = read(cloud, names.checkpoint_record_path(CHECKPOINT))
    found = CheckpointEntry.model_validate_json(record)
    assert found.model_copy(update={"signature": None}) == entry
    signature.verify_statement(
        found.signature, found.signed_sha256, own_key(cloud), subject=RECORD_NAME
    )
    assert signed("1-0") == {"status": "signed"}
    assert read(cloud, names.checkpoint_record_path(CHECKPOINT)) == record


@pytest.mark.parametrize("builder", [PROJECT, JOB, QUANTIZER_PROJECT])
def test_build_writes_candidates_alone_and_replaces_none(cloud, builder):
    s3 = cloud.session("s3", builder)
    own, fields = names.candidate_path("9" * 20, builder, "x"), {"Bucket": BUCKET, "Body": b"x"}
    once = {**fields, "IfNoneMatch": "*"}
    assert refusal_code(s3.put_object, Key=own, **once) is None
    assert refusal_code(s3.put_object, Key=own, **once) == "PreconditionFailed"
    assert refusal_code(s3.put_object, Key=own, **fields) == "AccessDenied"
    for name in ("checkpoints/k/x", "engines/k/x", "sources/x"):
        assert refusal_code(s3.put_object, Key=name, **once) == "AccessDenied", name
