"""Roles for GitHub's tokens, and conditional writes, as IAM evaluates them."""

import json

import pytest

from onboarding.aws_limits import GITHUB_ISSUER
from tests.local_cloud.account import until
from tests.local_cloud.authorized_cloud import authorized_cloud, refusal_code
from tests.unit.local_cloud.iam.github_issuer import Issuer

pytestmark = pytest.mark.local_cloud

ACCOUNT = "111122223333"
PROVIDER = f"arn:aws:iam::{ACCOUNT}:oidc-provider/{GITHUB_ISSUER}"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/build"
CLAIMS = {
    "sub": "repo:acme/models:environment:dev-build",
    "repository_id": "456789",
    "job_workflow_ref": "acme/models/.github/workflows/roundhouse-run.yml@refs/heads/main",
}
BUCKET = "written-once"
TEMPLATE = {
    "Provider": {
        "Type": "AWS::IAM::OIDCProvider",
        "Properties": {"Url": f"https://{GITHUB_ISSUER}", "ClientIdList": ["sts.amazonaws.com"]},
    },
    "Role": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "RoleName": "build",
            "MaxSessionDuration": 7200,
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Federated": {"Ref": "Provider"}},
                        "Action": "sts:AssumeRoleWithWebIdentity",
                        "Condition": {
                            "StringEquals": {
                                f"{GITHUB_ISSUER}:{name}": value for name, value in CLAIMS.items()
                            }
                        },
                    }
                ],
            },
            "Policies": [
                {
                    "PolicyName": "exact",
                    "PolicyDocument": {
                        "Version": "2012-10-17",
                        "Statement": [
                            {
                                "Effect": "Allow",
                                "Action": "s3:PutObject",
                                "Resource": f"arn:aws:s3:::{BUCKET}/*",
                                "Condition": condition,
                            }
                            for condition in (
                                {"Null": {"s3:if-none-match": "false"}},
                                {"Bool": {"s3:ObjectCreationOperation": "false"}},
                            )
                        ],
                    },
                }
            ],
        },
    },
}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    with authorized_cloud(tmp_path_factory.mktemp("authorized") / "state") as cloud:
        formation = cloud.root("cloudformation", ACCOUNT)
        formation.create_stack(
            StackName="roles",
            TemplateBody=json.dumps({"Resources": TEMPLATE}),
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        formation.get_waiter("stack_create_complete").wait(
            StackName="roles", WaiterConfig={"Delay": 1}
        )
        cloud.root("s3", ACCOUNT).create_bucket(Bucket=BUCKET)
        yield cloud


def test_a_token_with_the_claims_of_the_trust_policy_takes_the_role(cloud):
    credentials = cloud.assume(ROLE, cloud.issuer.token(**CLAIMS), DurationSeconds=7200)
    identity = cloud.session("sts", credentials).get_caller_identity()
    assert identity["Arn"] == f"arn:aws:sts::{ACCOUNT}:assumed-role/build/test"


@pytest.mark.parametrize(
    ("code", "claims"),
    [
        ("AccessDenied", {"sub": "repo:acme/models:pull_request"}),
        ("AccessDenied", {"repository_id": "1"}),
        ("AccessDenied", {"repository_id": None}),
        (
            "AccessDenied",
            {"job_workflow_ref": CLAIMS["job_workflow_ref"].replace("heads/main", "heads/mine")},
        ),
        ("InvalidIdentityToken", {"aud": "https://github.com/acme"}),
        ("InvalidIdentityToken", {"iss": "https://gitlab.example.com"}),
        ("ExpiredTokenException", {"exp": 1}),
    ],
)
def test_refuses_a_token_by_its_claims(cloud, code, claims):
    assert refusal_code(cloud.assume, ROLE, cloud.issuer.token(**{**CLAIMS, **claims})) == code


def test_refuses_a_token_that_somebody_else_signed(cloud):
    token = Issuer(seed=1).token(**CLAIMS)
    assert refusal_code(cloud.assume, ROLE, token) == "InvalidIdentityToken"


def test_refuses_a_session_longer_than_the_roles(cloud):
    token = cloud.issuer.token(**CLAIMS)
    assert refusal_code(cloud.assume, ROLE, token, DurationSeconds=7201) == "ValidationError"


def test_role_writes_what_is_not_there_and_replaces_nothing(cloud):
    s3 = cloud.session("s3", cloud.assume(ROLE, cloud.issuer.token(**CLAIMS)))
    put = {"Bucket": BUCKET, "Key": "one", "Body": b"1"}
    assert refusal_code(s3.put_object, **put) == "AccessDenied"
    assert refusal_code(s3.put_object, **put, IfNoneMatch="*") is None
    assert refusal_code(s3.put_object, **put, IfNoneMatch="*") == "PreconditionFailed"
    copy = {"Bucket": BUCKET, "Key": "two", "CopySource": f"{BUCKET}/one"}
    assert refusal_code(s3.copy_object, **copy) == "AccessDenied"


def test_multipart_upload_of_the_role_ends_write_once(cloud):
    s3 = cloud.session("s3", cloud.assume(ROLE, cloud.issuer.token(**CLAIMS)))
    upload = {"Bucket": BUCKET, "Key": "parts"}
    upload["UploadId"] = s3.create_multipart_upload(**upload)["UploadId"]
    tag = s3.upload_part(**upload, PartNumber=1, Body=b"1")["ETag"]
    parts = {"MultipartUpload": {"Parts": [{"PartNumber": 1, "ETag": tag}]}}
    assert refusal_code(s3.complete_multipart_upload, **upload, **parts) == "AccessDenied"
    complete = {**upload, **parts, "IfNoneMatch": "*"}
    assert refusal_code(s3.complete_multipart_upload, **complete) is None


def test_refuses_a_second_provider_of_one_url(cloud):
    formation = cloud.root("cloudformation", ACCOUNT)
    template = json.dumps({"Resources": {"Provider": TEMPLATE["Provider"]}})
    formation.create_stack(StackName="again", TemplateBody=template)
    assert "already exists" in until(lambda: failure(formation, "again"))
    providers = cloud.root("iam", ACCOUNT).list_open_id_connect_providers()
    assert providers["OpenIDConnectProviderList"] == [{"Arn": PROVIDER}]


def failure(formation, stack):
    """The first reason of a stack's failure."""
    events = formation.describe_stack_events(StackName=stack)["StackEvents"]
    reasons = [
        event["ResourceStatusReason"]
        for event in events
        if event["ResourceStatus"] == "CREATE_FAILED"
    ]
    return reasons[-1] if reasons else None
