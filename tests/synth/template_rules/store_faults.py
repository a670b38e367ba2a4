"""Single faults of builds, workflows, stores, network and dashboards."""

from __future__ import annotations

import json
from functools import partial

from tests.synth.template_rules.fault import (
    ELSEWHERE,
    EMBEDDER,
    EXAMPLE,
    TEXT,
    add,
    update,
    without,
)
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

builds_everything = partial(add, "builds and workflow", "everything")
update_builds_everything = partial(update, "builds and workflow", "everything")
update_builds_everything(
    "log group that no stack has",
    "Builds",
    PROJECT,
    "LogsConfig",
    "CloudWatchLogs",
    GroupName="/aws/codebuild/other",
)


LOGS = "AWS::Logs::LogGroup"
builds_everything(
    "log group without retention", lambda s: without(s, "Builds", LOGS, "RetentionInDays")
)


def no_log_group(s: Stacks) -> None:
    """Remove a log group."""
    template = s["Images"]
    del template["Resources"][logical_id(template, LOGS)]


builds_everything("no log group", no_log_group)
builds_everything(
    "VPC without groups",
    lambda s: without(s, "Builds", PROJECT, "VpcConfig", "SecurityGroupIds", text="VpcConfig"),
)
update_builds_everything(
    "VPC with an empty list of groups",
    "Builds",
    PROJECT,
    "VpcConfig",
    text="VpcConfig",
    SecurityGroupIds=[],
)
builds_everything(
    "misspelt SDK action",
    lambda s: machine(s["Builds"], "codebuild:startBuild", "codebuild:startBuilds"),
)
builds_everything(
    "misspelt SDK service",
    lambda s: machine(s["Builds"], "aws-sdk:sagemaker:describe", "aws-sdk:sagemakr:describe"),
)
builds_everything(
    "misspelt argument",
    lambda s: machine(s["Builds"], "SourceLocationOverride", "SourceLocationOveride"),
)
builds_everything(
    "misspelt inner argument",
    lambda s: machine(s["Builds"], "MaxRuntimeInSeconds", "MaxRuntimeSeconds"),
)
update_builds_everything(
    "distributed map in an express workflow", "Builds", MACHINE, StateMachineType="EXPRESS"
)
builds_everything(
    "express child executions",
    lambda s: machine(
        s["Builds"], '\\"ExecutionType\\":\\"STANDARD\\"', '\\"ExecutionType\\":\\"EXPRESS\\"'
    ),
)
builds_everything(
    "project that no stack has",
    lambda s: machine(s["Builds"], "roundhouse-cloud-build-", "roundhouse-cloud-builds-"),
)
update_builds_everything(
    "image pulled without the role",
    "Builds",
    PROJECT,
    "Environment",
    ImagePullCredentialsType="CODEBUILD",
)
update_builds_everything(
    "privileged engine build", "Builds", PROJECT, "Environment", PrivilegedMode=True
)

store_dev = partial(add, "stores and network", "dev")
update_store_dev = partial(update, "stores and network", "dev")
store_everything = partial(add, "stores and network", "everything")
update_store_everything = partial(update, "stores and network", "everything")
BUCKET = "AWS::S3::Bucket"
KEY = "AWS::KMS::Key"
TOPIC = "AWS::SNS::Topic"
TOPIC_POLICY = "AWS::SNS::TopicPolicy"
REPOSITORY, VPC_ENDPOINT = "AWS::ECR::Repository", "AWS::EC2::VPCEndpoint"


def topic_statement(s: Stacks, sid: str) -> Document:
    """Return the topic policy's statement of an action and effect."""
    document = one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"]
    return next(item for item in document if item["Effect"] == sid)


update_store_dev(
    "bucket without TLS", "Foundation", "AWS::S3::BucketPolicy", "PolicyDocument", Statement=[]
)
store_dev(
    "topic without TLS",
    lambda s: one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"].remove(
        topic_statement(s, "Deny")
    ),
)
update_store_everything(
    "topic with SNS's own key", "Foundation", TOPIC, KmsMasterKeyId="alias/aws/sns"
)
store_dev(
    "bucket with S3's own key",
    lambda s: one(s["Foundation"], BUCKET)["BucketEncryption"]["ServerSideEncryptionConfiguration"][
        0
    ].update(ServerSideEncryptionByDefault={"SSEAlgorithm": "aws:kms"}),
)
store_dev(
    "topic policy without its publisher",
    lambda s: one(s["Foundation"], TOPIC_POLICY)["PolicyDocument"]["Statement"].remove(
        topic_statement(s, "Allow")
    ),
)
store_dev(
    "topic policy of another publisher",
    lambda s: topic_statement(s, "Allow").update(Principal={"Service": "events.amazonaws.com"}),
)
store_dev(
    "topic policy of another account",
    lambda s: topic_statement(s, "Allow").update(Condition=ELSEWHERE),
)
store_dev(
    "topic policy of another topic",
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


store_dev("key that alarms may not use", key_without_cloudwatch)
store_dev(
    "alarm to a topic that no stack has",
    lambda s: alarm(s[EMBEDDER], "-disk").update(
        AlarmActions=["arn:aws:sns:us-east-1:111122223333:other"]
    ),
)
store_dev(
    "alarm to another region",
    lambda s: alarm(s[EMBEDDER], "-disk").update(
        AlarmActions=["arn:aws:sns:eu-west-1:111122223333:roundhouse-dev-alarms"]
    ),
)
update_store_everything(
    "VPC endpoint of another name",
    "Foundation",
    VPC_ENDPOINT,
    text="ecr.dkr",
    ServiceName="com.amazonaws.us-east-1.ecr.drk",
)
update_store_everything(
    "VPC endpoint of another region",
    "Foundation",
    VPC_ENDPOINT,
    text="ecr.dkr",
    ServiceName="com.amazonaws.us-west-2.ecr.dkr",
)
update_store_everything(
    "VPC endpoint of another service",
    "Foundation",
    VPC_ENDPOINT,
    text="us-east-1.logs",
    ServiceName="com.amazonaws.us-east-1.sqs",
)
update_store_everything(
    "private DNS off", "Foundation", VPC_ENDPOINT, text="us-east-1.kms", PrivateDnsEnabled=False
)
update_store_everything(
    "VPC endpoint without groups",
    "Foundation",
    VPC_ENDPOINT,
    text="us-east-1.kms",
    SecurityGroupIds=[],
)
store_dev(
    "dashboard of a missing alarm",
    lambda s: dashboard(
        s["Observability"], "dev-sentence-embedder-server-errors", "dev-sentence-embedder-5xx"
    ),
)
store_everything(
    "dashboard of a missing endpoint's alarm",
    lambda s: dashboard(s["Observability"], "alarm:cloud-shared-drift", "alarm:cloud-share-drift"),
)
update_store_everything(
    "mutable repository", "Foundation", REPOSITORY, ImageTagMutability="MUTABLE"
)
update_store_everything(
    "unscanned repository",
    "Foundation",
    REPOSITORY,
    ImageScanningConfiguration={"ScanOnPush": False},
)
for stateful in (BUCKET, KEY, REPOSITORY):
    for key in ("DeletionPolicy", "UpdateReplacePolicy"):

        def remove_key(s: Stacks, kind: str = stateful, name: str = key) -> None:
            next(resources(s["Foundation"], kind)).pop(name)

        store_dev(f"{stateful} without {key}", remove_key)
update_store_dev("key that does not rotate", "Foundation", KEY, EnableKeyRotation=False)
update_store_dev(
    "bucket without versions", "Foundation", BUCKET, VersioningConfiguration={"Status": "Suspended"}
)
store_everything(
    "captures without a key", lambda s: without(s, EXAMPLE, CONFIG, "DataCaptureConfig", "KmsKeyId")
)
update_store_everything(
    "captures with an alias that no stack has",
    EXAMPLE,
    CONFIG,
    "DataCaptureConfig",
    KmsKeyId="alias/other",
)
update_store_dev(
    "repository that no stack has",
    EMBEDDER,
    MODEL,
    "PrimaryContainer",
    Image="111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/tritn:e1",
)
store_everything("model outside of the VPC", lambda s: without(s, EXAMPLE, MODEL, "VpcConfig"))
update_store_dev(
    "archive of another bucket",
    EMBEDDER,
    MODEL,
    "PrimaryContainer",
    ModelDataUrl="s3://other/engines/a/model.tar.gz",
)
update_store_dev(
    "archive that the role may not read",
    EMBEDDER,
    MODEL,
    "PrimaryContainer",
    ModelDataUrl="s3://roundhouse-dev-111122223333-us-east-1/engines/other/model.tar.gz",
)


def two_endpoints(s: Stacks) -> None:
    """Give two endpoints of different stacks one name."""
    one(s[TEXT], ENDPOINT)["EndpointName"] = "dev-sentence-embedder"


store_dev("two endpoints of one name", two_endpoints)
store_dev(
    "dashboard in another stack of no endpoint",
    lambda s: dashboard(s["Observability"], "dev-text-shared", "dev-text"),
)
store_dev("topic without a key", lambda s: without(s, "Foundation", TOPIC, "KmsMasterKeyId"))
store_dev(
    "queue without a key",
    lambda s: s["Builds"]["Resources"].update(Added={"Type": "AWS::SQS::Queue", "Properties": {}}),
)
add(
    "stores and network",
    "queue",
    "answers without a key",
    lambda s: without(s, EXAMPLE, CONFIG, "AsyncInferenceConfig", "OutputConfig", "KmsKeyId"),
)
update_store_dev("open container", EMBEDDER, MODEL, EnableNetworkIsolation=False)
store_dev("isolation left out", lambda s: without(s, EMBEDDER, MODEL, "EnableNetworkIsolation"))
