"""Roles of builds read the buckets that the environment names, and nothing beside them."""

from __future__ import annotations

import pytest

from onboarding.environment_spec import EnvironmentSpec
from onboarding.source_access import SourceBucketSpec
from stacks.access.sources import source_reads
from stacks.builds.projects import CPU
from stacks.builds.roles import job_statements, project_statements
from stacks.vpc_endpoints import vpc_endpoints

KEY = "arn:aws:kms:us-east-1:444455556666:key/0f8fad5b-d9cb-469f-a165-70867728950e"
DEV = EnvironmentSpec(name="dev", account="111122223333", region="us-east-1", platform="p")
NETWORK = {
    "vpc_id": "vpc-0123456789abcdef0",
    "subnet_ids": ("subnet-0123456789abcdef0", "subnet-0123456789abcdef1"),
    "security_group_ids": ("sg-0123456789abcdef0",),
    "route_table_ids": ("rtb-0123456789abcdef0",),
    "vpc_endpoints": True,
}
WHOLE = SourceBucketSpec(bucket="company-models")
PART = SourceBucketSpec(bucket="theirs", prefix="nlp/", kms_key_arn=KEY, account="444455556666")


def environment(*buckets: SourceBucketSpec, **changes: object) -> EnvironmentSpec:
    return EnvironmentSpec.model_validate(
        {**DEV.model_dump(exclude_unset=True), "source_buckets": buckets, **changes}
    )


def by_sid(statements):
    return {statement["Sid"]: statement for statement in statements}


@pytest.mark.parametrize("statements", ["project", "job"])
def test_every_role_of_builds_reads_the_named_part_alone(statements):
    spec = environment(PART)
    found = by_sid(
        project_statements(spec, CPU) if statements == "project" else job_statements(spec, "image")
    )
    owner = {"aws:ResourceAccount": "444455556666"}
    assert found["ReadSources"] == {
        "Sid": "ReadSources",
        "Effect": "Allow",
        "Action": ["s3:GetObject"],
        "Resource": ["arn:aws:s3:::theirs/nlp/*"],
        "Condition": {"StringEquals": owner},
    }
    assert found["ListSources"]["Resource"] == ["arn:aws:s3:::theirs"]
    assert found["ListSources"]["Condition"] == {
        "StringLike": {"s3:prefix": "nlp/*"},
        "StringEquals": owner,
    }
    assert found["DecryptSources"]["Resource"] == [KEY]
    assert found["DecryptSources"]["Condition"] == {
        "StringEquals": {"kms:ViaService": "s3.us-east-1.amazonaws.com"}
    }


def test_every_bucket_has_statements_of_its_own():
    found = by_sid(source_reads(environment(WHOLE, PART)))
    assert list(found) == [
        "ReadSources",
        "ListSources",
        "ReadSources2",
        "ListSources2",
        "DecryptSources2",
    ]
    assert found["ReadSources"]["Resource"] == ["arn:aws:s3:::company-models/*"]


SECRET = "arn:aws:secretsmanager:us-east-1:444455556666:secret:{}-AbCdEf"
SECRETS = {
    "huggingface": {"secret_arn": SECRET.format("hub"), "kms_key_arn": KEY},
    "package_index": {
        "url": "https://packages.example.com/simple/",
        "credentials": {"secret_arn": SECRET.format("index")},
    },
}


def test_every_role_of_builds_reads_the_named_secrets_alone():
    found = by_sid(job_statements(environment(source_secrets=SECRETS), "image"))
    assert found["ReadSecrets"] == {
        "Sid": "ReadSecrets",
        "Effect": "Allow",
        "Action": ["secretsmanager:GetSecretValue"],
        "Resource": [SECRET.format("hub"), SECRET.format("index")],
    }
    assert found["DecryptSecrets"]["Resource"] == [KEY]
    assert found["DecryptSecrets"]["Condition"] == {
        "StringEquals": {"kms:ViaService": "secretsmanager.us-east-1.amazonaws.com"}
    }


def test_isolated_subnets_reach_secrets_manager_where_there_is_a_secret():
    endpoints = vpc_endpoints(environment(network=NETWORK, source_secrets=SECRETS))
    service = endpoints["SecretsManagerEndpoint"]["Properties"]["ServiceName"]
    assert service == "com.amazonaws.us-east-1.secretsmanager"
    assert "SecretsManagerEndpoint" not in vpc_endpoints(environment(network=NETWORK))


def test_an_environment_without_buckets_has_the_statements_of_before():
    assert source_reads(DEV) == ()


def test_gateway_lets_the_named_part_through_and_no_more():
    found = by_sid(_gateway(environment(PART, network=NETWORK)))
    assert found["Sources"]["Resource"] == ["arn:aws:s3:::theirs", "arn:aws:s3:::theirs/nlp/*"]
    assert found["Sources"]["Action"] == ["s3:GetObject", "s3:ListBucket"]
    assert found["Sources"]["Condition"] == {
        "StringEquals": {"aws:PrincipalAccount": "111122223333"}
    }
    assert "Sources" not in by_sid(_gateway(environment(network=NETWORK)))


def _gateway(spec):
    endpoint = vpc_endpoints(spec)["S3Endpoint"]["Properties"]
    return endpoint["PolicyDocument"]["Statement"]
