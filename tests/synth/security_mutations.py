"""Single faults of templates, by the check that must refuse them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.synth import security

Change = Callable[[dict[str, Any]], None]


def of(template: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first resource of a type."""
    return next(resource for resource in template["Resources"].values() if resource["Type"] == kind)


def allowed(template: dict[str, Any]) -> dict[str, Any]:
    """The first statement of the first role."""
    statement: dict[str, Any] = of(template, ROLE)["Properties"]["Policies"][0]["PolicyDocument"][
        "Statement"
    ][0]
    return statement


def trust(template: dict[str, Any]) -> dict[str, Any]:
    statement: dict[str, Any] = of(template, ROLE)["Properties"]["AssumeRolePolicyDocument"][
        "Statement"
    ][0]
    return statement


def statement(template: dict[str, Any], sid: str) -> dict[str, Any]:
    """The statement of a role with an id."""
    return next(item for _, _, item in security.allowing(template) if item.get("Sid") == sid)


def without(container: dict[str, Any], key: str) -> None:
    del container[key]


def fields(template: dict[str, Any], kind: str) -> dict[str, Any]:
    """Properties of the first resource of a type."""
    properties: dict[str, Any] = of(template, kind)["Properties"]
    return properties


def add(template: dict[str, Any], kind: str, **properties: Any) -> None:
    template["Resources"]["Added"] = {"Type": kind, "Properties": properties}


def policy(*actions: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {
        "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": resource, **more}]
    }


ROLE = "AWS::IAM::Role"
BUCKET = "AWS::S3::Bucket"
TOPIC = "AWS::SNS::Topic"
MODEL_TYPE = "AWS::SageMaker::Model"
CONFIG, KEY = "AWS::SageMaker::EndpointConfig", "AWS::KMS::Key"
TOPIC_POLICY, BUCKET_POLICY = "AWS::SNS::TopicPolicy", "AWS::S3::BucketPolicy"
REPOSITORY, POLICY = "AWS::ECR::Repository", "AWS::IAM::Policy"
ENDPOINT, BUILDS, FOUNDATION, IMAGES = "Endpoint-example", "Builds", "Foundation", "Images"
ELSEWHERE = {"AWS": "arn:aws:iam::999999999999:root"}

BY_CHECK: dict[str, dict[str, tuple[str, Change]]] = {
    "wildcards": {
        "an action is a whole service": (ENDPOINT, lambda t: allowed(t).update(Action=["s3:*"])),
        "an action is a whole verb": (ENDPOINT, lambda t: allowed(t).update(Action=["s3:Get*"])),
        "everything is allowed": (BUILDS, lambda t: allowed(t).update(Action="*", Resource="*")),
        "a resource is everything": (
            ENDPOINT,
            lambda t: statement(t, "ReadEngines").update(Resource=["*"]),
        ),
        "a resource is any bucket": (
            ENDPOINT,
            lambda t: statement(t, "ReadEngines").update(Resource=["arn:aws:s3:::*/*"]),
        ),
        "a resource is the whole bucket": (
            ENDPOINT,
            lambda t: statement(t, "ReadEngines").update(
                Resource=["arn:aws:s3:::roundhouse-cloud-111122223333-us-east-1/*"]
            ),
        ),
        "any key may be used": (
            ENDPOINT,
            lambda t: without(statement(t, "UseKey")["Condition"], "ForAnyValue:StringEquals"),
        ),
        "a key may be used by any service": (
            ENDPOINT,
            lambda t: without(statement(t, "UseKey")["Condition"], "StringEquals"),
        ),
        "metrics go into any namespace": (
            ENDPOINT,
            lambda t: without(statement(t, "PublishHostMetrics"), "Condition"),
        ),
        "any log may be written": (
            IMAGES,
            lambda t: statement(t, "WriteLogs").update(
                Resource=["arn:aws:logs:us-east-1:111122223333:*"]
            ),
        ),
        "any repository may be pushed to": (
            IMAGES,
            lambda t: statement(t, "PushImages").update(
                Resource=["arn:aws:ecr:us-east-1:111122223333:repository/*"]
            ),
        ),
        "all but something is allowed": (
            ENDPOINT,
            lambda t: allowed(t).update(NotAction=["iam:*"]),
        ),
        "an endpoint of the VPC lets strangers through": (
            FOUNDATION,
            lambda t: without(
                t["Resources"]["KmsEndpoint"]["Properties"]["PolicyDocument"]["Statement"][0],
                "Condition",
            ),
        ),
        "CloudWatch may use the key for anybody": (
            FOUNDATION,
            lambda t: without(fields(t, KEY)["KeyPolicy"]["Statement"][1], "Condition"),
        ),
    },
    "managed_policies": {
        "a role has full access by a managed policy": (
            ENDPOINT,
            lambda t: fields(t, ROLE).update(
                ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"]
            ),
        ),
        "a policy hangs beside its role": (
            BUILDS,
            lambda t: add(
                t,
                "AWS::IAM::ManagedPolicy",
                PolicyDocument=policy("s3:GetObject", resource="arn:aws:s3:::b/a"),
            ),
        ),
        "a policy is on somebody else's role": (
            ENDPOINT,
            lambda t: fields(t, POLICY).update(Roles=["Admin"]),
        ),
        "a policy is on a user too": (
            ENDPOINT,
            lambda t: fields(t, POLICY).update(Users=["somebody"]),
        ),
        "a user is made": (BUILDS, lambda t: add(t, "AWS::IAM::User", UserName="u")),
    },
    "destructions": {
        "a version may delete": (
            ENDPOINT,
            lambda t: statement(t, "ReadEngines").update(Action=["s3:DeleteObject"]),
        ),
        "a role may delete engines": (
            BUILDS,
            lambda t: statement(t, "WriteObjects")["Action"].append("s3:DeleteObject"),
        ),
        "a role may delete an endpoint that no recommendation job made": (
            BUILDS,
            lambda t: statement(t, "RunBenchmarks").update(
                Resource=["arn:aws:sagemaker:us-east-1:111122223333:endpoint/cloud-example"]
            ),
        ),
        "a role may open the bucket": (
            BUILDS,
            lambda t: allowed(t)["Action"].append("s3:PutBucketPolicy"),
        ),
        "a role may make identities": (
            BUILDS,
            lambda t: allowed(t)["Action"].append("iam:CreateRole"),
        ),
    },
    "trusts": {
        "a role serves any account": (ENDPOINT, lambda t: without(trust(t), "Condition")),
        "a role serves another account": (
            BUILDS,
            lambda t: trust(t)["Condition"]["StringEquals"].update(
                {"aws:SourceAccount": "999999999999"}
            ),
        ),
        "a role may be assumed by another account": (
            IMAGES,
            lambda t: trust(t).update(Principal=ELSEWHERE),
        ),
        "a role may be assumed by anybody": (IMAGES, lambda t: trust(t).update(Principal="*")),
        "a role may be assumed by a service that has no part here": (
            IMAGES,
            lambda t: trust(t).update(Principal={"Service": "ec2.amazonaws.com"}),
        ),
    },
    "boundaries": {
        "a role has no boundary": (
            ENDPOINT,
            lambda t: without(fields(t, ROLE), "PermissionsBoundary"),
        )
    },
    "public": {
        "a bucket is open to the public": (
            FOUNDATION,
            lambda t: fields(t, BUCKET)["PublicAccessBlockConfiguration"].update(
                BlockPublicPolicy=False
            ),
        ),
        "a bucket says nothing of the public": (
            FOUNDATION,
            lambda t: without(fields(t, BUCKET), "PublicAccessBlockConfiguration"),
        ),
        "a bucket's policy lets in another account": (
            FOUNDATION,
            lambda t: fields(t, BUCKET_POLICY)["PolicyDocument"]["Statement"].append(
                {
                    "Effect": "Allow",
                    "Principal": ELSEWHERE,
                    "Action": "s3:GetObject",
                    "Resource": "arn:aws:s3:::b/a",
                }
            ),
        ),
        "a topic takes messages from anybody": (
            FOUNDATION,
            lambda t: fields(t, TOPIC_POLICY)["PolicyDocument"]["Statement"][0].update(
                Principal="*"
            ),
        ),
        "a topic takes messages of another account's alarms": (
            FOUNDATION,
            lambda t: without(
                fields(t, TOPIC_POLICY)["PolicyDocument"]["Statement"][0], "Condition"
            ),
        ),
        "a key is open to another account": (
            FOUNDATION,
            lambda t: fields(t, KEY)["KeyPolicy"]["Statement"][0].update(Principal=ELSEWHERE),
        ),
        "a repository is open to everybody": (
            FOUNDATION,
            lambda t: fields(t, REPOSITORY).update(
                RepositoryPolicyText={
                    "Statement": [
                        {"Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchGetImage"]}
                    ]
                }
            ),
        ),
        "a tag may be pushed again": (
            FOUNDATION,
            lambda t: fields(t, REPOSITORY).update(ImageTagMutability="MUTABLE"),
        ),
    },
    "unknown_types": {
        "a store of a kind that nobody judged": (BUILDS, lambda t: add(t, "AWS::DynamoDB::Table"))
    },
}
"""By the check that must refuse it, then by its name: the stack, and the change."""
