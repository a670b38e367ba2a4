"""Single faults of builds, workflows, stores, network and dashboards."""

from __future__ import annotations

import json
from typing import Any

from tests.synth.template_rules.fault import ELSEWHERE, EMBEDDER, EXAMPLE, TEXT, add, without
from tests.synth.template_rules.stacks import (
    CONFIG,
    ENDPOINT,
    MACHINE,
    MODEL,
    PROJECT,
    Document,
    Stacks,
    alarm,
    dashboard,
    logical_id,
    machine,
    one,
    resources,
)

BUILDS = "builds and workflow"
add(
    BUILDS,
    "log group that no stack has",
    "everything",
    lambda s: one(s["Builds"], PROJECT)["LogsConfig"]["CloudWatchLogs"].update(
        GroupName="/aws/codebuild/other"
    ),
)


LOGS = "AWS::Logs::LogGroup"
add(
    BUILDS,
    "log group without retention",
    "everything",
    lambda s: without(s, "Builds", LOGS, "RetentionInDays"),
)


def no_log_group(s: Stacks) -> None:
    """Remove a log group."""
    template = s["Images"]
    del template["Resources"][logical_id(template, LOGS)]


add(BUILDS, "no log group", "everything", no_log_group)
add(
    BUILDS,
    "VPC without groups",
    "everything",
    lambda s: without(s, "Builds", PROJECT, "VpcConfig", "SecurityGroupIds", text="VpcConfig"),
)
add(
    BUILDS,
    "VPC with an empty list of groups",
    "everything",
    lambda s: one(s["Builds"], PROJECT, "VpcConfig")["VpcConfig"].update(SecurityGroupIds=[]),
)
add(
    BUILDS,
    "misspelt SDK action",
    "everything",
    lambda s: machine(s["Builds"], "codebuild:startBuild", "codebuild:startBuilds"),
)
add(
    BUILDS,
    "misspelt SDK service",
    "everything",
    lambda s: machine(s["Builds"], "aws-sdk:sagemaker:describe", "aws-sdk:sagemakr:describe"),
)
add(
    BUILDS,
    "misspelt argument",
    "everything",
    lambda s: machine(s["Builds"], "SourceLocationOverride", "SourceLocationOveride"),
)
add(
    BUILDS,
    "misspelt inner argument",
    "everything",
    lambda s: machine(s["Builds"], "MaxRuntimeInSeconds", "MaxRuntimeSeconds"),
)
add(
    BUILDS,
    "distributed map in an express workflow",
    "everything",
    lambda s: one(s["Builds"], MACHINE).update(StateMachineType="EXPRESS"),
)
add(
    BUILDS,
    "express child executions",
    "everything",
    lambda s: machine(
        s["Builds"], '\\"ExecutionType\\":\\"STANDARD\\"', '\\"ExecutionType\\":\\"EXPRESS\\"'
    ),
)
add(
    BUILDS,
    "project that no stack has",
    "everything",
    lambda s: machine(s["Builds"], "roundhouse-cloud-build-", "roundhouse-cloud-builds-"),
)
add(
    BUILDS,
    "image pulled without the role",
    "everything",
    lambda s: one(s["Builds"], PROJECT)["Environment"].update(ImagePullCredentialsType="CODEBUILD"),
)
add(
    BUILDS,
    "privileged engine build",
    "everything",
    lambda s: one(s["Builds"], PROJECT)["Environment"].update(PrivilegedMode=True),
)

STORES = "stores and network"
BUCKET, KEY, TOPIC, TOPIC_POLICY = (
    "AWS::S3::Bucket",
    "AWS::KMS::Key",
    "AWS::SNS::Topic",
    "AWS::SNS::TopicPolicy",
)
REPOSITORY, VPC_ENDPOINT = "AWS::ECR::Repository", "AWS::EC2::VPCEndpoint"


def foundation(
    name: str, kind: str, assembly: str = "everything", text: str = "", **new: Any
) -> None:
    """Add a fault that sets properties of a resource of the foundation."""
    add(STORES, name, assembly, lambda s: one(s["Foundation"], kind, text).update(new))


def topic_statement(s: Stacks, sid: str) -> Document:
    """Return the topic policy's statement of an action and effect."""
    document = one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"]
    return next(item for item in document if item["Effect"] == sid)


add(
    STORES,
    "bucket without TLS",
    "dev",
    lambda s: one(s["Foundation"], "AWS::S3::BucketPolicy")["PolicyDocument"].update(Statement=[]),
)
add(
    STORES,
    "topic without TLS",
    "dev",
    lambda s: one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"].remove(
        topic_statement(s, "Deny")
    ),
)
foundation("topic with SNS's own key", TOPIC, KmsMasterKeyId="alias/aws/sns")
add(
    STORES,
    "bucket with S3's own key",
    "dev",
    lambda s: one(s["Foundation"], BUCKET)["BucketEncryption"]["ServerSideEncryptionConfiguration"][
        0
    ].update(ServerSideEncryptionByDefault={"SSEAlgorithm": "aws:kms"}),
)
add(
    STORES,
    "topic policy without its publisher",
    "dev",
    lambda s: one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"].remove(
        topic_statement(s, "Allow")
    ),
)
add(
    STORES,
    "topic policy of another publisher",
    "dev",
    lambda s: topic_statement(s, "Allow").update(Principal={"Service": "events.amazonaws.com"}),
)
add(
    STORES,
    "topic policy of another account",
    "dev",
    lambda s: topic_statement(s, "Allow").update(Condition=ELSEWHERE),
)
add(
    STORES,
    "topic policy of another topic",
    "dev",
    lambda s: topic_statement(s, "Allow").update(
        Resource="arn:aws:sns:us-east-1:111122223333:other"
    ),
)


def key_without_cloudwatch(s: Stacks) -> None:
    """Take CloudWatch out of the key's policy."""
    policy = one(s["Foundation"], KEY)["KeyPolicy"]
    policy["Statement"] = [
        item for item in policy["Statement"] if "cloudwatch" not in json.dumps(item)
    ]


add(STORES, "key that alarms may not use", "dev", key_without_cloudwatch)
add(
    STORES,
    "alarm to a topic that no stack has",
    "dev",
    lambda s: alarm(s[EMBEDDER], "-disk").update(
        AlarmActions=["arn:aws:sns:us-east-1:111122223333:other"]
    ),
)
add(
    STORES,
    "alarm to another region",
    "dev",
    lambda s: alarm(s[EMBEDDER], "-disk").update(
        AlarmActions=["arn:aws:sns:eu-west-1:111122223333:roundhouse-dev-alarms"]
    ),
)
foundation(
    "VPC endpoint of another name",
    VPC_ENDPOINT,
    text="ecr.dkr",
    ServiceName="com.amazonaws.us-east-1.ecr.drk",
)
foundation(
    "VPC endpoint of another region",
    VPC_ENDPOINT,
    text="ecr.dkr",
    ServiceName="com.amazonaws.us-west-2.ecr.dkr",
)
foundation(
    "VPC endpoint of another service",
    VPC_ENDPOINT,
    text="us-east-1.logs",
    ServiceName="com.amazonaws.us-east-1.sqs",
)
foundation("private DNS off", VPC_ENDPOINT, text="us-east-1.kms", PrivateDnsEnabled=False)
foundation("VPC endpoint without groups", VPC_ENDPOINT, text="us-east-1.kms", SecurityGroupIds=[])
add(
    STORES,
    "dashboard of a missing alarm",
    "dev",
    lambda s: dashboard(
        s["Observability"], "dev-sentence-embedder-server-errors", "dev-sentence-embedder-5xx"
    ),
)
add(
    STORES,
    "dashboard of a missing endpoint's alarm",
    "everything",
    lambda s: dashboard(s["Observability"], "alarm:cloud-shared-drift", "alarm:cloud-share-drift"),
)
foundation("mutable repository", REPOSITORY, ImageTagMutability="MUTABLE")
foundation("unscanned repository", REPOSITORY, ImageScanningConfiguration={"ScanOnPush": False})
for stateful in (BUCKET, KEY, REPOSITORY):
    for key in ("DeletionPolicy", "UpdateReplacePolicy"):

        def kept(s: Stacks, kind: str = stateful, name: str = key) -> None:
            next(resources(s["Foundation"], kind)).pop(name)

        add(STORES, f"{stateful} without {key}", "dev", kept)
foundation("key that does not rotate", KEY, "dev", EnableKeyRotation=False)
foundation(
    "bucket without versions", BUCKET, "dev", VersioningConfiguration={"Status": "Suspended"}
)
add(
    STORES,
    "captures without a key",
    "everything",
    lambda s: without(s, EXAMPLE, CONFIG, "DataCaptureConfig", "KmsKeyId"),
)
add(
    STORES,
    "captures with an alias that no stack has",
    "everything",
    lambda s: one(s[EXAMPLE], CONFIG)["DataCaptureConfig"].update(KmsKeyId="alias/other"),
)
add(
    STORES,
    "repository that no stack has",
    "dev",
    lambda s: one(s[EMBEDDER], MODEL)["PrimaryContainer"].update(
        Image="111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/tritn:e1"
    ),
)
add(
    STORES,
    "model outside of the VPC",
    "everything",
    lambda s: without(s, EXAMPLE, MODEL, "VpcConfig"),
)
add(
    STORES,
    "archive of another bucket",
    "dev",
    lambda s: one(s[EMBEDDER], MODEL)["PrimaryContainer"].update(
        ModelDataUrl="s3://other/engines/a/model.tar.gz"
    ),
)
add(
    STORES,
    "archive that the role may not read",
    "dev",
    lambda s: one(s[EMBEDDER], MODEL)["PrimaryContainer"].update(
        ModelDataUrl="s3://roundhouse-dev-111122223333-us-east-1/engines/other/model.tar.gz"
    ),
)


def two_endpoints(s: Stacks) -> None:
    """Give two endpoints of different stacks one name."""
    one(s[TEXT], ENDPOINT)["EndpointName"] = "dev-sentence-embedder"


add(STORES, "two endpoints of one name", "dev", two_endpoints)
add(
    STORES,
    "dashboard in another stack of no endpoint",
    "dev",
    lambda s: dashboard(s["Observability"], "dev-text-shared", "dev-text"),
)
