"""Single faults in real assemblies, by kind: what only a deployment, or an outage, would show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from tests.synth.template_rules.stacks import (
    ALARM,
    CONFIG,
    ENDPOINT,
    MACHINE,
    MODEL,
    POLICY,
    PROJECT,
    ROLE,
    TARGET,
    Change,
    Document,
    Stacks,
    alarm,
    dashboard,
    deny,
    logical_id,
    machine,
    metric,
    one,
    replace,
    resources,
)

EXAMPLE, SHARED = "Endpoint-example", "Endpoint-shared"
EMBEDDER, TEXT = "Endpoint-sentence-embedder", "Endpoint-text-shared"
ROUTING = ("DeploymentConfig", "BlueGreenUpdatePolicy", "TrafficRoutingConfiguration")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: its kind, the assembly it is put into, and the change."""

    kind: str
    name: str
    assembly: str
    change: Change


FAULTS: list[Fault] = []


def add(kind: str, name: str, assembly: str, change: Change) -> None:
    """Add a fault to the table."""
    FAULTS.append(Fault(kind=kind, name=name, assembly=assembly, change=change))


def at(value: Document, *path: str) -> Any:
    """Return what lies at a path."""
    for key in path:
        value = value[key]
    return value


def without_dependency(template: Document, kind: str, other: str, text: str = "") -> None:
    """Take the dependencies on a type away from every resource of a type."""
    gone = {key for key, item in template["Resources"].items() if item["Type"] == other}
    for resource in resources(template, kind, text):
        given = resource.get("DependsOn", [])
        given = [given] if isinstance(given, str) else given
        resource["DependsOn"] = [name for name in given if name not in gone]


ORDER = "order"
for kind, other, text in (
    (MODEL, "AWS::IAM::Policy", ""),
    (CONFIG, MODEL, ""),
    (ENDPOINT, CONFIG, ""),
    (ENDPOINT, ALARM, ""),
    (TARGET, ENDPOINT, ""),
    (POLICY, TARGET, ""),
    (ALARM, ENDPOINT, "no-instances"),
    (ALARM, ENDPOINT, "-drift"),
):
    noun, needed = kind.rsplit("::", 1)[-1], other.rsplit("::", 1)[-1]

    def order(s: Stacks, k: str = kind, o: str = other, t: str = text) -> None:
        without_dependency(s[EMBEDDER], k, o, t)

    add(ORDER, f"{noun} {text} without {needed}", "dev", order)

STATISTICS = "statistics and units"


def alarm_fault(
    name: str, end: str, /, assembly: str = "dev", stack: str = EMBEDDER, **new: Any
) -> None:
    """Add a fault that sets properties of an alarm."""
    add(STATISTICS, name, assembly, lambda s: alarm(s[stack], end).update(new))


def statistic(name: str, end: str, identifier: str, value: str) -> None:
    """Add a fault that changes a statistic in an alarm's metric math."""
    add(
        STATISTICS,
        name,
        "dev",
        lambda s: metric(alarm(s[EMBEDDER], end), identifier).update(Stat=value),
    )


def drift_by_sum(s: Stacks) -> None:
    """Read the latency of the drift alarm by Sum."""
    properties = alarm(s[EMBEDDER], "-drift")
    del properties["ExtendedStatistic"]
    properties["Statistic"] = "Sum"


add(STATISTICS, "latency by Sum", "dev", drift_by_sum)
statistic("latency of the SLO by Sum", "-latency", "p99", "Sum")
statistic("share of server errors by Sum", "-server-errors", "share", "Sum")
statistic("share of client errors by Sum", "-client-errors", "share", "Sum")
statistic("failed requests by Average", "-server-errors", "failed", "Average")
statistic("share without answers by Sum", "-no-answers", "clients", "Sum")
statistic("requests by Average", "-ceiling", "requests", "Average")
statistic("failed requests by SampleCount", "-server-errors", "failed", "SampleCount")
statistic("share of server errors by Maximum", "-server-errors", "share", "Maximum")
statistic("latency of the SLO by SampleCount", "-latency", "p99", "SampleCount")
statistic("few requests by their latency", "-latency", "requests", "Average")
statistic("latency of the SLO by p50", "-latency", "p99", "p50")
alarm_fault("disk by Minimum", "-disk", Statistic="Minimum")
alarm_fault("drift by p50", "-drift", ExtendedStatistic="p50")
alarm_fault("disk by Sum", "-disk", Statistic="Sum")
alarm_fault("host memory by Sum", "-host-memory", Statistic="Sum")
alarm_fault("GPU memory by SampleCount", "-gpu-memory", Statistic="SampleCount")
alarm_fault("load by Average", "-saturation", Statistic="Average")
alarm_fault("SLO in ms", "-latency", Threshold=50)
alarm_fault("SLO in seconds", "-latency", Threshold=0.05)
alarm_fault("drift in ms", "-drift", Threshold=46)
alarm_fault("disk as a share", "-disk", Threshold=0.85)
alarm_fault("disk of 850 %", "-disk", Threshold=850)
alarm_fault("server errors in percent", "-server-errors", Threshold=25)
alarm_fault("early errors in percent", "-early-5xx", Threshold=1)
alarm_fault("load a second", "-saturation", Threshold=400)
alarm_fault("age in ms", "-oldest-request", "queue", EXAMPLE, Threshold=2_645_000)
alarm_fault("loading in ms", "-loading-wait", "queue", SHARED, Threshold=14_000)
alarm_fault("cache hits in percent", "-cache-hits", "queue", SHARED, Threshold=50)
alarm_fault("latency the wrong way", "-latency", ComparisonOperator="LessThanThreshold")
alarm_fault("errors the wrong way", "-server-errors", ComparisonOperator="LessThanThreshold")
alarm_fault("hosts the wrong way", "-no-instances", ComparisonOperator="GreaterThanThreshold")
alarm_fault("disk the wrong way", "-disk", ComparisonOperator="LessThanOrEqualToThreshold")
alarm_fault(
    "cache hits the wrong way",
    "-cache-hits",
    "queue",
    SHARED,
    ComparisonOperator="GreaterThanThreshold",
)
alarm_fault("gone hosts are fine", "-no-instances", TreatMissingData="notBreaching")
alarm_fault("gone hosts are missing", "-no-instances", TreatMissingData="missing")
alarm_fault("no traffic is a latency", "-latency", TreatMissingData="breaching")
alarm_fault("no traffic is an error", "-server-errors", TreatMissingData="breaching")
alarm_fault("no queue is an age", "-oldest-request", "queue", EXAMPLE, TreatMissingData="breaching")


def policy_statistic(s: Stacks, value: str = "Sum") -> None:
    """Scale on the sum of GPU utilization."""
    tracking = one(s[EMBEDDER], POLICY, "GPUUtilization")
    tracking["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"].update(
        Statistic=value
    )


add(STATISTICS, "utilization policy by Sum", "dev", policy_statistic)


def backlog_by_sum(s: Stacks) -> None:
    """Scale on the sum of the backlog."""
    tracking = one(s[EXAMPLE], POLICY, "ApproximateBacklogSizePerInstance")
    tracking["TargetTrackingScalingPolicyConfiguration"]["CustomizedMetricSpecification"].update(
        Statistic="Sum"
    )


add(STATISTICS, "backlog policy by Sum", "queue", backlog_by_sum)


def target_share(s: Stacks) -> None:
    """Scale on a share instead of a percentage."""
    tracking = one(s[EMBEDDER], POLICY, "GPUUtilization")
    tracking["TargetTrackingScalingPolicyConfiguration"]["TargetValue"] = 0.7


add(STATISTICS, "utilization target as a share", "dev", target_share)

ROLLOUT = "rollout"


def endpoint_fault(name: str, *path: str, value: Any, assembly: str = "dev") -> None:
    """Add a fault that sets a property of an endpoint."""

    def change(s: Stacks) -> None:
        at(one(s[EMBEDDER], ENDPOINT), *path[:-1])[path[-1]] = value

    add(ROLLOUT, name, assembly, change)


def canary(percent: int = 50, wait: int = 300) -> Document:
    """Return how a canary shifts traffic."""
    size = {"Type": "CAPACITY_PERCENT", "Value": percent}
    return {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": wait}


endpoint_fault("canary without a wait", *ROUTING, value=canary(wait=0))
endpoint_fault("old fleet ends at once", *ROUTING[:2], "TerminationWaitInSeconds", value=0)
endpoint_fault("canary of 80 %", *ROUTING, value=canary(percent=80))
endpoint_fault(
    "time shorter than its waits", *ROUTING[:2], "MaximumExecutionTimeoutInSeconds", value=600
)
endpoint_fault("canary shorter than its alarms", *ROUTING, value=canary(wait=60))


def rollback_name(s: Stacks, name: str) -> None:
    """Roll back by another alarm."""
    config = one(s[EMBEDDER], ENDPOINT)["DeploymentConfig"]["AutoRollbackConfiguration"]
    config["Alarms"][0]["AlarmName"] = name


add(
    ROLLOUT,
    "alarm of another endpoint",
    "dev",
    lambda s: rollback_name(s, "dev-text-shared-server-errors"),
)
add(
    ROLLOUT,
    "alarm that no stack has",
    "dev",
    lambda s: rollback_name(s, "dev-sentence-embedder-5xx"),
)
add(
    ROLLOUT,
    "alarm by its ARN",
    "dev",
    lambda s: rollback_name(s, "arn:aws:cloudwatch:us-east-1:111122223333:alarm:a"),
)


def long_period(s: Stacks) -> None:
    """Look at the rollback alarm's metrics by the hour."""
    for query in alarm(s[EMBEDDER], "-server-errors")["Metrics"]:
        if "MetricStat" in query:
            query["MetricStat"]["Period"] = 3600


add(ROLLOUT, "alarm of a long period", "dev", long_period)
add(
    ROLLOUT,
    "alarm of many periods",
    "dev",
    lambda s: alarm(s[EMBEDDER], "-server-errors").update(
        EvaluationPeriods=30, DatapointsToAlarm=30
    ),
)


def other_dimensions(s: Stacks) -> None:
    """Watch another endpoint under this endpoint's name."""
    properties = alarm(s[EMBEDDER], "-server-errors")
    text = json.dumps(properties["Metrics"])
    properties["Metrics"] = json.loads(text.replace("dev-sentence-embedder", "dev-text-shared"))


add(ROLLOUT, "alarm that watches another endpoint", "dev", other_dimensions)
add(
    ROLLOUT,
    "no rollback",
    "dev",
    lambda s: one(s[EMBEDDER], ENDPOINT)["DeploymentConfig"].pop("AutoRollbackConfiguration"),
)

SCALING = "scaling"


def action(s: Stacks, index: int = 0) -> Document:
    """Return a scheduled action of the example endpoint."""
    return one(s[EXAMPLE], TARGET)["ScheduledActions"][index]


def policy_name(s: Stacks) -> None:
    """Give two policies of a variant one name."""
    name = one(s[EMBEDDER], POLICY)["PolicyName"]
    one(s[EMBEDDER], POLICY, "GPUUtilization")["PolicyName"] = name


def target_a_second(s: Stacks) -> None:
    """Scale on requests a second."""
    tracking = one(s[EMBEDDER], POLICY)["TargetTrackingScalingPolicyConfiguration"]
    tracking["TargetValue"] = 200


add(SCALING, "two policies of one name", "dev", policy_name)
add(SCALING, "target of requests a second", "dev", target_a_second)
add(
    SCALING, "unknown time zone", "everything", lambda s: action(s).update(Timezone="Europe/Belrin")
)
add(SCALING, "abbreviated time zone", "everything", lambda s: action(s).update(Timezone="CEST"))
add(
    SCALING,
    "two actions of one name",
    "everything",
    lambda s: action(s, 1).update(ScheduledActionName=action(s)["ScheduledActionName"]),
)
add(
    SCALING,
    "cron of five fields",
    "everything",
    lambda s: action(s).update(Schedule="cron(0 7 * * *)"),
)
add(
    SCALING,
    "action without bounds",
    "everything",
    lambda s: action(s).update(ScalableTargetAction={}),
)
add(
    SCALING,
    "floor above ceiling in a schedule",
    "everything",
    lambda s: action(s)["ScalableTargetAction"].update(MinCapacity=9),
)
add(
    SCALING,
    "first count above the maximum",
    "dev",
    lambda s: one(s[EMBEDDER], CONFIG)["ProductionVariants"][0].update(InitialInstanceCount=9),
)
add(SCALING, "floor above ceiling", "dev", lambda s: one(s[EMBEDDER], TARGET).update(MinCapacity=9))
add(SCALING, "floor of zero", "dev", lambda s: one(s[EMBEDDER], TARGET).update(MinCapacity=0))
add(
    SCALING,
    "update that resets counts",
    "dev",
    lambda s: one(s[EMBEDDER], ENDPOINT).update(
        RetainAllVariantProperties=False, ExcludeRetainedVariantProperties=[]
    ),
)
add(
    SCALING,
    "update that excludes the count",
    "dev",
    lambda s: one(s[EMBEDDER], ENDPOINT).update(
        RetainAllVariantProperties=True,
        ExcludeRetainedVariantProperties=[{"VariantPropertyType": "DesiredInstanceCount"}],
    ),
)
add(
    SCALING,
    "target of another variant",
    "dev",
    lambda s: one(s[EMBEDDER], TARGET).update(
        ResourceId="endpoint/dev-sentence-embedder/variant/Blue"
    ),
)
add(
    SCALING,
    "policy of another endpoint",
    "dev",
    lambda s: one(s[EMBEDDER], POLICY).update(
        ResourceId="endpoint/dev-text-shared/variant/AllTraffic"
    ),
)

ROLES = "roles"


def lacks(
    name: str, assembly: str, stack: str, action: str, role: str = "Role", text: str = ""
) -> None:
    """Add a fault that takes an action from a role."""
    add(ROLES, name, assembly, lambda s: deny(s[stack], action, role, text))


def states_elsewhere(
    name: str, assembly: str, stack: str, old: str, new: str, role: str = "Role", text: str = ""
) -> None:
    """Add a fault that changes a text in a role's statements."""
    add(ROLES, name, assembly, lambda s: replace(s[stack], old, new, role, text))


lacks("endpoint cannot decrypt", "dev", EMBEDDER, "kms:Decrypt")
lacks("endpoint has no registry token", "dev", EMBEDDER, "ecr:GetAuthorizationToken")
lacks("endpoint cannot pull", "dev", EMBEDDER, "ecr:BatchGetImage", "")
lacks("endpoint cannot write logs", "dev", EMBEDDER, "logs:PutLogEvents")
lacks("endpoint cannot create its log", "dev", EMBEDDER, "logs:CreateLogStream")
lacks("endpoint cannot look at alarms", "dev", EMBEDDER, "cloudwatch:DescribeAlarms")
lacks("endpoint cannot publish metrics", "dev", EMBEDDER, "cloudwatch:PutMetricData")
lacks("endpoint cannot read archives", "dev", TEXT, "s3:GetObject", "")
lacks("endpoint cannot list the bucket", "dev", TEXT, "s3:ListBucket", "")
lacks("endpoint cannot capture", "everything", EXAMPLE, "s3:PutObject")
lacks(
    "capture without a data key", "everything", EXAMPLE, "kms:GenerateDataKey", text="s3.us-east-1"
)
lacks("endpoint without interfaces", "everything", EXAMPLE, "ec2:CreateNetworkInterface")
lacks(
    "endpoint cannot release interfaces",
    "everything",
    EXAMPLE,
    "ec2:DeleteNetworkInterfacePermission",
)
lacks("endpoint cannot describe subnets", "everything", EXAMPLE, "ec2:DescribeSubnets")
lacks("no answers", "queue", EXAMPLE, "s3:PutObject")
lacks("no requests", "queue", EXAMPLE, "s3:GetObject", text="requests/")
lacks("answers are not announced", "queue", EXAMPLE, "sns:Publish")
lacks("announcements without a key", "queue", EXAMPLE, "kms:GenerateDataKey", text="sns.us-east-1")
lacks("volume without a grant", "volume", EXAMPLE, "kms:CreateGrant")
lacks("build cannot decrypt", "everything", "Builds", "kms:Decrypt", "CpuRole")
lacks("build has no registry token", "everything", "Builds", "ecr:GetAuthorizationToken", "GpuRole")
lacks("build cannot write logs", "everything", "Builds", "logs:PutLogEvents", "CpuRole")
lacks("build cannot publish", "everything", "Builds", "s3:PutObject", "GpuRole")
lacks("build cannot read sources", "everything", "Builds", "s3:GetObject", "CpuRole")
lacks("build without interfaces", "everything", "Builds", "ec2:CreateNetworkInterface", "CpuRole")
lacks(
    "training job cannot write its log", "everything", "Builds", "logs:CreateLogStream", "JobRole"
)
lacks("training job cannot pull", "everything", "Builds", "ecr:GetDownloadUrlForLayer", "JobRole")
lacks("images cannot be pushed", "everything", "Images", "ecr:PutImage")
lacks(
    "state machine cannot start itself",
    "everything",
    "Builds",
    "states:StartExecution",
    "MachineRole",
)
lacks(
    "state machine cannot start builds",
    "everything",
    "Builds",
    "codebuild:StartBuild",
    "MachineRole",
)
lacks(
    "state machine cannot follow jobs",
    "everything",
    "Builds",
    "sagemaker:DescribeTrainingJob",
    "MachineRole",
)
lacks("state machine cannot pass the role", "everything", "Builds", "iam:PassRole", "MachineRole")
lacks("state machine cannot tell", "everything", "Builds", "sns:Publish", "MachineRole")
lacks(
    "state machine cannot use the topic's key",
    "everything",
    "Builds",
    "kms:GenerateDataKey",
    "MachineRole",
)
states_elsewhere("ViaService of another region", "dev", EMBEDDER, "s3.us-east-1", "s3.eu-west-1")
states_elsewhere(
    "key of another alias", "dev", EMBEDDER, "alias/roundhouse-dev", "alias/roundhouse-prod"
)
states_elsewhere(
    "logs of another endpoint",
    "dev",
    EMBEDDER,
    "Endpoints/dev-sentence-embedder",
    "Endpoints/dev-other",
)
states_elsewhere(
    "alarms of another endpoint", "dev", EMBEDDER, "alarm:dev-sentence-embedder", "alarm:dev-other"
)
states_elsewhere(
    "captures under another prefix",
    "everything",
    EXAMPLE,
    "/captures/cloud-example/",
    "/captures/another/",
)
states_elsewhere(
    "answers under another prefix", "queue", EXAMPLE, "/answers/cloud-example/", "/answers/another/"
)
states_elsewhere(
    "builds of another prefix", "everything", "Builds", "/networks/", "/graphs/", "CpuRole"
)
states_elsewhere(
    "role passed to another service",
    "everything",
    "Builds",
    "sagemaker.amazonaws.com",
    "ecs.amazonaws.com",
    "MachineRole",
)
states_elsewhere(
    "one project is left out",
    "everything",
    "Builds",
    "project/roundhouse-cloud-build-gpu",
    "project/roundhouse-cloud-build-tpu",
    "MachineRole",
)


def trust(s: Stacks, stack: str, **new: Any) -> None:
    """Change the trust of a stack's first role."""
    one(s[stack], ROLE)["AssumeRolePolicyDocument"]["Statement"][0].update(new)


ELSEWHERE = {"StringEquals": {"aws:SourceAccount": "999999999999"}}
add(ROLES, "SourceAccount of elsewhere", "dev", lambda s: trust(s, EMBEDDER, Condition=ELSEWHERE))
add(
    ROLES,
    "build's SourceAccount of elsewhere",
    "everything",
    lambda s: trust(s, "Builds", Condition=ELSEWHERE),
)
add(
    ROLES,
    "trust in another service",
    "dev",
    lambda s: trust(s, EMBEDDER, Principal={"Service": "ec2.amazonaws.com"}),
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


def without(s: Stacks, stack: str, kind: str, *path: str, text: str = "") -> None:
    """Remove a property of the first resource of a type."""
    del at(one(s[stack], kind, text), *path[:-1])[path[-1]]


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
