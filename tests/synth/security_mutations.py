"""Single faults of templates, by the check that must refuse them."""

from __future__ import annotations

from typing import Any

from tests.synth import security
from tests.synth.template_rules.stacks import (
    BUCKET,
    BUILDS,
    EXAMPLE,
    FOUNDATION,
    GONE,
    KEY,
    REPOSITORY,
    ROLE,
    TOPIC_POLICY,
    VPC_ENDPOINT,
    Change,
    Stacks,
    put,
)

IMAGES, POLICY, BUCKET_POLICY = "Images", "AWS::IAM::Policy", "AWS::S3::BucketPolicy"
ELSEWHERE = {"AWS": "arn:aws:iam::999999999999:root"}
OF_EC2 = {"Service": "ec2.amazonaws.com"}
ALLOWED = "Policies.0.PolicyDocument.Statement.0"
TRUST = "AssumeRolePolicyDocument.Statement.0"
OPEN_REPOSITORY = {
    "Statement": [{"Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchGetImage"]}]
}
OF_STRANGERS = {
    "Effect": "Allow",
    "Principal": ELSEWHERE,
    "Action": "s3:GetObject",
    "Resource": "arn:aws:s3:::b/a",
}
BESIDE = {
    "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": "arn:aws:s3:::b/a"}]
}


def sid(stack: str, name: str, key: str, value: Any) -> Change:
    """Return a change of a key of the statement with an id; of a condition by its operator."""

    def change(stacks: Stacks) -> None:
        found = (item for _, _, item in security.allowing(stacks[stack]) if item.get("Sid") == name)
        *holders, last = key.split(".")
        holder = next(found)
        for part in holders:
            holder = holder[part]
        if value is GONE:
            del holder[last]
        else:
            holder[last] = value

    return change


def add(stack: str, kind: str, **properties: Any) -> Change:
    resource = {"Type": kind, "Properties": properties}
    return lambda stacks: stacks[stack]["Resources"].update(Added=resource)


FAULTS: tuple[tuple[str, str, Change], ...] = (
    ("wildcards", EXAMPLE, put(EXAMPLE, ROLE, f"{ALLOWED}.Action", ["s3:*"])),
    ("wildcards", EXAMPLE, put(EXAMPLE, ROLE, f"{ALLOWED}.Action", ["s3:Get*"])),
    ("wildcards", BUILDS, put(BUILDS, ROLE, ALLOWED,
                              {"Effect": "Allow", "Action": "*", "Resource": "*"})),
    ("wildcards", EXAMPLE, put(EXAMPLE, ROLE, f"{ALLOWED}.NotAction", ["iam:*"])),
    *(("wildcards", EXAMPLE, sid(EXAMPLE, "ReadEngines", "Resource", [resource]))
      for resource in ("*", "arn:aws:s3:::*/*",
                       "arn:aws:s3:::roundhouse-cloud-111122223333-us-east-1/*")),
    *(("wildcards", EXAMPLE, sid(EXAMPLE, "UseKey", f"Condition.{operator}", GONE))
      for operator in ("ForAnyValue:StringEquals", "StringEquals")),
    ("wildcards", EXAMPLE, sid(EXAMPLE, "PublishHostMetrics", "Condition", GONE)),
    ("wildcards", IMAGES, sid(IMAGES, "WriteLogs", "Resource",
                              ["arn:aws:logs:us-east-1:111122223333:*"])),
    ("wildcards", IMAGES, sid(IMAGES, "PushImages", "Resource",
                              ["arn:aws:ecr:us-east-1:111122223333:repository/*"])),
    ("wildcards", FOUNDATION, put(FOUNDATION, VPC_ENDPOINT, "PolicyDocument.Statement.0.Condition",
                                  GONE, "us-east-1.kms")),
    ("wildcards", FOUNDATION, put(FOUNDATION, KEY, "KeyPolicy.Statement.1.Condition", GONE)),
    ("managed_policies", EXAMPLE, put(EXAMPLE, ROLE, "ManagedPolicyArns",
                                      ["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"])),
    ("managed_policies", BUILDS, add(BUILDS, "AWS::IAM::ManagedPolicy", PolicyDocument=BESIDE)),
    ("managed_policies", EXAMPLE, put(EXAMPLE, POLICY, "Roles", ["Admin"])),
    ("managed_policies", EXAMPLE, put(EXAMPLE, POLICY, "Users", ["somebody"])),
    ("managed_policies", BUILDS, add(BUILDS, "AWS::IAM::User", UserName="u")),
    ("destructions", EXAMPLE, sid(EXAMPLE, "ReadEngines", "Action", ["s3:DeleteObject"])),
    ("destructions", BUILDS, sid(BUILDS, "WriteObjects", "Action", ["s3:DeleteObject"])),
    ("destructions", BUILDS, sid(BUILDS, "RunBenchmarks", "Resource",
                                 ["arn:aws:sagemaker:us-east-1:111122223333:endpoint/cloud-a"])),
    ("destructions", BUILDS, put(BUILDS, ROLE, f"{ALLOWED}.Action", ["s3:PutBucketPolicy"])),
    ("destructions", BUILDS, put(BUILDS, ROLE, f"{ALLOWED}.Action", ["iam:CreateRole"])),
    ("trusts", EXAMPLE, put(EXAMPLE, ROLE, f"{TRUST}.Condition", GONE)),
    ("trusts", BUILDS, put(BUILDS, ROLE, f"{TRUST}.Condition.StringEquals.aws:SourceAccount",
                           "999999999999")),
    *(("trusts", IMAGES, put(IMAGES, ROLE, f"{TRUST}.Principal", principal))
      for principal in (ELSEWHERE, "*", OF_EC2)),
    ("boundaries", EXAMPLE, put(EXAMPLE, ROLE, "PermissionsBoundary", GONE)),
    ("public", FOUNDATION, put(FOUNDATION, BUCKET,
                               "PublicAccessBlockConfiguration.BlockPublicPolicy", False)),
    ("public", FOUNDATION, put(FOUNDATION, BUCKET, "PublicAccessBlockConfiguration", GONE)),
    ("public", FOUNDATION, put(FOUNDATION, BUCKET_POLICY, "PolicyDocument.Statement.0",
                               OF_STRANGERS)),
    ("public", FOUNDATION, put(FOUNDATION, TOPIC_POLICY, "PolicyDocument.Statement.0.Principal",
                               "*")),
    ("public", FOUNDATION, put(FOUNDATION, TOPIC_POLICY, "PolicyDocument.Statement.0.Condition",
                               GONE)),
    ("public", FOUNDATION, put(FOUNDATION, KEY, "KeyPolicy.Statement.0.Principal", ELSEWHERE)),
    ("public", FOUNDATION, put(FOUNDATION, REPOSITORY, "RepositoryPolicyText", OPEN_REPOSITORY)),
    ("public", FOUNDATION, put(FOUNDATION, REPOSITORY, "ImageTagMutability", "MUTABLE")),
    ("unknown_types", BUILDS, add(BUILDS, "AWS::DynamoDB::Table")),
)  # fmt: skip
"""The check that must refuse a fault, the stack, and the change."""
