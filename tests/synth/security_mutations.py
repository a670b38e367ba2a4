"""Single faults of templates: the stack, the check that must refuse it, and the change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.synth import security

Change = Callable[[dict[str, Any]], None]


def of(template: dict[str, Any], kind: str) -> dict[str, Any]:
    """The first resource of a type."""
    return next(each for each in template["Resources"].values() if each["Type"] == kind)


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


def named(template: dict[str, Any], sid: str) -> dict[str, Any]:
    """The statement of a role with an id."""
    return next(each for _, _, each in security.allowing(template) if each.get("Sid") == sid)


def without(container: dict[str, Any], key: str) -> None:
    del container[key]


def added(template: dict[str, Any], kind: str, **properties: Any) -> None:
    template["Resources"]["Added"] = {"Type": kind, "Properties": properties}


def policy(*actions: str, resource: str = "*", **more: Any) -> dict[str, Any]:
    return {
        "Statement": [{"Effect": "Allow", "Action": list(actions), "Resource": resource, **more}]
    }


ROLE, BUCKET, TOPIC, MODEL_TYPE = (
    "AWS::IAM::Role",
    "AWS::S3::Bucket",
    "AWS::SNS::Topic",
    "AWS::SageMaker::Model",
)
ENDPOINT, BUILDS, FOUNDATION, IMAGES = "Endpoint-example", "Builds", "Foundation", "Images"
ELSEWHERE = {"AWS": "arn:aws:iam::999999999999:root"}

MUTATIONS: dict[str, tuple[str, str, Change]] = {
    "an action is a whole service": (
        ENDPOINT,
        "wildcards",
        lambda t: allowed(t).update(Action=["s3:*"]),
    ),
    "an action is a whole verb": (
        ENDPOINT,
        "wildcards",
        lambda t: allowed(t).update(Action=["s3:Get*"]),
    ),
    "everything is allowed": (
        BUILDS,
        "wildcards",
        lambda t: allowed(t).update(Action="*", Resource="*"),
    ),
    "a resource is everything": (
        ENDPOINT,
        "wildcards",
        lambda t: named(t, "ReadEngines").update(Resource=["*"]),
    ),
    "a resource is any bucket": (
        ENDPOINT,
        "wildcards",
        lambda t: named(t, "ReadEngines").update(Resource=["arn:aws:s3:::*/*"]),
    ),
    "a resource is the whole bucket": (
        ENDPOINT,
        "wildcards",
        lambda t: named(t, "ReadEngines").update(
            Resource=["arn:aws:s3:::roundhouse-cloud-111122223333-us-east-1/*"]
        ),
    ),
    "any key may be used": (
        ENDPOINT,
        "wildcards",
        lambda t: without(named(t, "UseKey")["Condition"], "ForAnyValue:StringEquals"),
    ),
    "a key may be used by any service": (
        ENDPOINT,
        "wildcards",
        lambda t: without(named(t, "UseKey")["Condition"], "StringEquals"),
    ),
    "metrics go into any namespace": (
        ENDPOINT,
        "wildcards",
        lambda t: without(named(t, "PublishHostMetrics"), "Condition"),
    ),
    "any log may be written": (
        IMAGES,
        "wildcards",
        lambda t: named(t, "WriteLogs").update(Resource=["arn:aws:logs:us-east-1:111122223333:*"]),
    ),
    "any repository may be pushed to": (
        IMAGES,
        "wildcards",
        lambda t: named(t, "PushImages").update(
            Resource=["arn:aws:ecr:us-east-1:111122223333:repository/*"]
        ),
    ),
    "all but something is allowed": (
        ENDPOINT,
        "wildcards",
        lambda t: allowed(t).update(NotAction=["iam:*"]),
    ),
    "an endpoint of the VPC lets strangers through": (
        FOUNDATION,
        "wildcards",
        lambda t: without(
            t["Resources"]["KmsEndpoint"]["Properties"]["PolicyDocument"]["Statement"][0],
            "Condition",
        ),
    ),
    "CloudWatch may use the key for anybody": (
        FOUNDATION,
        "wildcards",
        lambda t: without(
            of(t, "AWS::KMS::Key")["Properties"]["KeyPolicy"]["Statement"][1], "Condition"
        ),
    ),
    "a role has full access by a managed policy": (
        ENDPOINT,
        "managed_policies",
        lambda t: of(t, ROLE)["Properties"].update(
            ManagedPolicyArns=["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"]
        ),
    ),
    "a policy hangs beside its role": (
        BUILDS,
        "managed_policies",
        lambda t: added(
            t,
            "AWS::IAM::ManagedPolicy",
            PolicyDocument=policy("s3:GetObject", resource="arn:aws:s3:::b/a"),
        ),
    ),
    "a policy is on somebody else's role": (
        ENDPOINT,
        "managed_policies",
        lambda t: of(t, "AWS::IAM::Policy")["Properties"].update(Roles=["Admin"]),
    ),
    "a policy is on a user too": (
        ENDPOINT,
        "managed_policies",
        lambda t: of(t, "AWS::IAM::Policy")["Properties"].update(Users=["somebody"]),
    ),
    "a version may delete": (
        ENDPOINT,
        "destructions",
        lambda t: named(t, "ReadEngines").update(Action=["s3:DeleteObject"]),
    ),
    "a user is made": (
        BUILDS,
        "managed_policies",
        lambda t: added(t, "AWS::IAM::User", UserName="u"),
    ),
    "a role serves any account": (ENDPOINT, "trusts", lambda t: without(trust(t), "Condition")),
    "a role serves another account": (
        BUILDS,
        "trusts",
        lambda t: trust(t)["Condition"]["StringEquals"].update(
            {"aws:SourceAccount": "999999999999"}
        ),
    ),
    "a role may be assumed by another account": (
        IMAGES,
        "trusts",
        lambda t: trust(t).update(Principal=ELSEWHERE),
    ),
    "a role may be assumed by anybody": (
        IMAGES,
        "trusts",
        lambda t: trust(t).update(Principal="*"),
    ),
    "a role may be assumed by a service that has no part here": (
        IMAGES,
        "trusts",
        lambda t: trust(t).update(Principal={"Service": "ec2.amazonaws.com"}),
    ),
    "a role has no boundary": (
        ENDPOINT,
        "boundaries",
        lambda t: without(of(t, ROLE)["Properties"], "PermissionsBoundary"),
    ),
    "a role may be handed to any service": (
        BUILDS,
        "passed_roles",
        lambda t: without(named(t, "PassRole"), "Condition"),
    ),
    "any role may be handed on": (
        BUILDS,
        "passed_roles",
        lambda t: named(t, "PassRole").update(Resource=["arn:aws:iam::111122223333:role/*"]),
    ),
    "a role may delete engines": (
        BUILDS,
        "destructions",
        lambda t: named(t, "WriteObjects")["Action"].append("s3:DeleteObject"),
    ),
    "a role may open the bucket": (
        BUILDS,
        "destructions",
        lambda t: allowed(t)["Action"].append("s3:PutBucketPolicy"),
    ),
    "a role may make identities": (
        BUILDS,
        "destructions",
        lambda t: allowed(t)["Action"].append("iam:CreateRole"),
    ),
    "a bucket is not encrypted": (
        FOUNDATION,
        "unencrypted",
        lambda t: without(of(t, BUCKET)["Properties"], "BucketEncryption"),
    ),
    "a bucket is encrypted by S3's own key": (
        FOUNDATION,
        "unencrypted",
        lambda t: of(t, BUCKET)["Properties"]["BucketEncryption"].update(
            ServerSideEncryptionConfiguration=[
                {"ServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
            ]
        ),
    ),
    "a topic is not encrypted": (
        FOUNDATION,
        "unencrypted",
        lambda t: without(of(t, TOPIC)["Properties"], "KmsMasterKeyId"),
    ),
    "a topic is encrypted by a key that CloudWatch may not use": (
        FOUNDATION,
        "unencrypted",
        lambda t: of(t, TOPIC)["Properties"].update(KmsMasterKeyId="alias/aws/sns"),
    ),
    "a queue is not encrypted": (BUILDS, "unencrypted", lambda t: added(t, "AWS::SQS::Queue")),
    "a key is never rotated": (
        FOUNDATION,
        "unencrypted",
        lambda t: of(t, "AWS::KMS::Key")["Properties"].update(EnableKeyRotation=False),
    ),
    "a log never ends": (
        IMAGES,
        "unencrypted",
        lambda t: without(of(t, "AWS::Logs::LogGroup")["Properties"], "RetentionInDays"),
    ),
    "captures are not encrypted": (
        ENDPOINT,
        "unencrypted",
        lambda t: without(
            of(t, "AWS::SageMaker::EndpointConfig")["Properties"]["DataCaptureConfig"], "KmsKeyId"
        ),
    ),
    "a bucket is open to the public": (
        FOUNDATION,
        "public",
        lambda t: of(t, BUCKET)["Properties"]["PublicAccessBlockConfiguration"].update(
            BlockPublicPolicy=False
        ),
    ),
    "a bucket says nothing of the public": (
        FOUNDATION,
        "public",
        lambda t: without(of(t, BUCKET)["Properties"], "PublicAccessBlockConfiguration"),
    ),
    "a bucket's policy lets in another account": (
        FOUNDATION,
        "public",
        lambda t: of(t, "AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"][
            "Statement"
        ].append(
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
        "public",
        lambda t: of(t, "AWS::SNS::TopicPolicy")["Properties"]["PolicyDocument"]["Statement"][
            0
        ].update(Principal="*"),
    ),
    "a topic takes messages of another account's alarms": (
        FOUNDATION,
        "public",
        lambda t: without(
            of(t, "AWS::SNS::TopicPolicy")["Properties"]["PolicyDocument"]["Statement"][0],
            "Condition",
        ),
    ),
    "a key is open to another account": (
        FOUNDATION,
        "public",
        lambda t: of(t, "AWS::KMS::Key")["Properties"]["KeyPolicy"]["Statement"][0].update(
            Principal=ELSEWHERE
        ),
    ),
    "a repository is open to everybody": (
        FOUNDATION,
        "public",
        lambda t: of(t, "AWS::ECR::Repository")["Properties"].update(
            RepositoryPolicyText={
                "Statement": [
                    {"Effect": "Allow", "Principal": "*", "Action": ["ecr:BatchGetImage"]}
                ]
            }
        ),
    ),
    "a tag may be pushed again": (
        FOUNDATION,
        "public",
        lambda t: of(t, "AWS::ECR::Repository")["Properties"].update(ImageTagMutability="MUTABLE"),
    ),
    "a bucket answers in the clear": (
        FOUNDATION,
        "in_the_clear",
        lambda t: of(t, "AWS::S3::BucketPolicy")["Properties"]["PolicyDocument"].update(
            Statement=[]
        ),
    ),
    "a topic takes messages in the clear": (
        FOUNDATION,
        "in_the_clear",
        lambda t: of(t, "AWS::SNS::TopicPolicy")["Properties"]["PolicyDocument"]["Statement"].pop(),
    ),
    "a container reaches the network": (
        ENDPOINT,
        "open_networks",
        lambda t: of(t, MODEL_TYPE)["Properties"].update(EnableNetworkIsolation=False),
    ),
    "isolation is left out": (
        ENDPOINT,
        "open_networks",
        lambda t: without(of(t, MODEL_TYPE)["Properties"], "EnableNetworkIsolation"),
    ),
    "a model lies outside the VPC": (
        ENDPOINT,
        "open_networks",
        lambda t: without(of(t, MODEL_TYPE)["Properties"], "VpcConfig"),
    ),
    "a build of engines is privileged": (
        BUILDS,
        "privileged",
        lambda t: of(t, "AWS::CodeBuild::Project")["Properties"]["Environment"].update(
            PrivilegedMode=True
        ),
    ),
    "a store of a kind that nobody judged": (
        BUILDS,
        "unknown_types",
        lambda t: added(t, "AWS::DynamoDB::Table"),
    ),
}
