"""Single faults of builds, workflows, stores, network and dashboards."""

from __future__ import annotations

import json
from functools import partial
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

builds = partial(add, "builds and workflow")
builds(
    "log group that no stack has",
    "everything",
    lambda s: one(s["Builds"], PROJECT)["LogsConfig"]["CloudWatchLogs"].update(
        GroupName="/aws/codebuild/other"
    ),
)


LOGS = "AWS::Logs::LogGroup"
builds(
    "log group without retention",
    "everything",
    lambda s: without(s, "Builds", LOGS, "RetentionInDays"),
)


def no_log_group(s: Stacks) -> None:
    """Remove a log group."""
    template = s["Images"]
    del template["Resources"][logical_id(template, LOGS)]


builds("no log group", "everything", no_log_group)
builds(
    "VPC without groups",
    "everything",
    lambda s: without(s, "Builds", PROJECT, "VpcConfig", "SecurityGroupIds", text="VpcConfig"),
)
builds(
    "VPC with an empty list of groups",
    "everything",
    lambda s: one(s["Builds"], PROJECT, "VpcConfig")["VpcConfig"].update(SecurityGroupIds=[]),
)
builds(
    "misspelt SDK action",
    "everything",
    lambda s: machine(s["Builds"], "codebuild:startBuild", "codebuild:startBuilds"),
)
builds(
    "misspelt SDK service",
    "everything",
    lambda s: machine(s["Builds"], "aws-sdk:sagemaker:describe", "aws-sdk:sagemakr:describe"),
)
builds(
    "misspelt argument",
    "everything",
    lambda s: machine(s["Builds"], "SourceLocationOverride", "SourceLocationOveride"),
)
builds(
    "misspelt inner argument",
    "everything",
    lambda s: machine(s["Builds"], "MaxRuntimeInSeconds", "MaxRuntimeSeconds"),
)
builds(
    "distributed map in an express workflow",
    "everything",
    lambda s: one(s["Builds"], MACHINE).update(StateMachineType="EXPRESS"),
)
builds(
    "express child executions",
    "everything",
    lambda s: machine(
        s["Builds"], '\\"ExecutionType\\":\\"STANDARD\\"', '\\"ExecutionType\\":\\"EXPRESS\\"'
    ),
)
builds(
    "project that no stack has",
    "everything",
    lambda s: machine(s["Builds"], "roundhouse-cloud-build-", "roundhouse-cloud-builds-"),
)
builds(
    "image pulled without the role",
    "everything",
    lambda s: one(s["Builds"], PROJECT)["Environment"].update(ImagePullCredentialsType="CODEBUILD"),
)
builds(
    "privileged engine build",
    "everything",
    lambda s: one(s["Builds"], PROJECT)["Environment"].update(PrivilegedMode=True),
)

store = partial(add, "stores and network")
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
    store(name, assembly, lambda s: one(s["Foundation"], kind, text).update(new))


def topic_statement(s: Stacks, sid: str) -> Document:
    """Return the topic policy's statement of an action and effect."""
    document = one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"]
    return next(item for item in document if item["Effect"] == sid)


store(
    "bucket without TLS",
    "dev",
    lambda s: one(s["Foundation"], "AWS::S3::BucketPolicy")["PolicyDocument"].update(Statement=[]),
)
store(
    "topic without TLS",
    "dev",
    lambda s: one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"].remove(
        topic_statement(s, "Deny")
    ),
)
foundation("topic with SNS's own key", TOPIC, KmsMasterKeyId="alias/aws/sns")
store(
    "bucket with S3's own key",
    "dev",
    lambda s: one(s["Foundation"], BUCKET)["BucketEncryption"]["ServerSideEncryptionConfiguration"][
        0
    ].update(ServerSideEncryptionByDefault={"SSEAlgorithm": "aws:kms"}),
)
store(
    "topic policy without its publisher",
    "dev",
    lambda s: one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"].remove(
        topic_statement(s, "Allow")
    ),
)
store(
    "topic policy of another publisher",
    "dev",
    lambda s: topic_statement(s, "Allow").update(Principal={"Service": "events.amazonaws.com"}),
)
store(
    "topic policy of another account",
    "dev",
    lambda s: topic_statement(s, "Allow").update(Condition=ELSEWHERE),
)
store(
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


store("key that alarms may not use", "dev", key_without_cloudwatch)
store(
    "alarm to a topic that no stack has",
    "dev",
    lambda s: alarm(s[EMBEDDER], "-disk").update(
        AlarmActions=["arn:aws:sns:us-east-1:111122223333:other"]
    ),
)
store(
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
store(
    "dashboard of a missing alarm",
    "dev",
    lambda s: dashboard(
        s["Observability"], "dev-sentence-embedder-server-errors", "dev-sentence-embedder-5xx"
    ),
)
store(
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

        store(f"{stateful} without {key}", "dev", kept)
foundation("key that does not rotate", KEY, "dev", EnableKeyRotation=False)
foundation(
    "bucket without versions", BUCKET, "dev", VersioningConfiguration={"Status": "Suspended"}
)
store(
    "captures without a key",
    "everything",
    lambda s: without(s, EXAMPLE, CONFIG, "DataCaptureConfig", "KmsKeyId"),
)
store(
    "captures with an alias that no stack has",
    "everything",
    lambda s: one(s[EXAMPLE], CONFIG)["DataCaptureConfig"].update(KmsKeyId="alias/other"),
)
store(
    "repository that no stack has",
    "dev",
    lambda s: one(s[EMBEDDER], MODEL)["PrimaryContainer"].update(
        Image="111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/tritn:e1"
    ),
)
store("model outside of the VPC", "everything", lambda s: without(s, EXAMPLE, MODEL, "VpcConfig"))
store(
    "archive of another bucket",
    "dev",
    lambda s: one(s[EMBEDDER], MODEL)["PrimaryContainer"].update(
        ModelDataUrl="s3://other/engines/a/model.tar.gz"
    ),
)
store(
    "archive that the role may not read",
    "dev",
    lambda s: one(s[EMBEDDER], MODEL)["PrimaryContainer"].update(
        ModelDataUrl="s3://roundhouse-dev-111122223333-us-east-1/engines/other/model.tar.gz"
    ),
)


def two_endpoints(s: Stacks) -> None:
    """Give two endpoints of different stacks one name."""
    one(s[TEXT], ENDPOINT)["EndpointName"] = "dev-sentence-embedder"


store("two endpoints of one name", "dev", two_endpoints)
store(
    "dashboard in another stack of no endpoint",
    "dev",
    lambda s: dashboard(s["Observability"], "dev-text-shared", "dev-text"),
)
