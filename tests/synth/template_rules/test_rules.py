"""Every rule refuses a fault that is planted in a real assembly; without it, none speaks."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from template_rules import check
from template_rules.findings import TemplateFiles, check_files, own_findings, read_templates
from template_rules.templates import Template
from tests.synth.assembly import read_stacks, synthesized
from tests.synth.deployments import environment, locked, unlocked
from tests.synth.endpoint_cases import CAPTURE, POOLS, QUEUE, endpoint_settings
from tests.synth.full_stage import SETTINGS, everything
from tests.synth.generation_cases import SCALED, generator

pytestmark = pytest.mark.synth

Document = dict[str, Any]
Stacks = dict[str, Document]
"""Templates by the end of their stack's name: Foundation, Builds, Endpoint-example."""
Change = Callable[[Stacks], None]

FOUNDATION, BUILDS = "Foundation", "Builds"
EXAMPLE, SHARED, CHAT = "Endpoint-example", "Endpoint-shared", "Endpoint-chat"
EMBEDDER, TEXT = "Endpoint-sentence-embedder", "Endpoint-text-shared"
GONE = object()
"""In place of a value: the property is taken out."""
ROLE = "AWS::IAM::Role"
MODEL = "AWS::SageMaker::Model"
CONFIG = "AWS::SageMaker::EndpointConfig"
ENDPOINT = "AWS::SageMaker::Endpoint"
ALARM = "AWS::CloudWatch::Alarm"
COMPONENT = "AWS::SageMaker::InferenceComponent"
TARGET = "AWS::ApplicationAutoScaling::ScalableTarget"
POLICY = "AWS::ApplicationAutoScaling::ScalingPolicy"
BUCKET, KEY, LOGS = "AWS::S3::Bucket", "AWS::KMS::Key", "AWS::Logs::LogGroup"
TOPIC, TOPIC_POLICY = "AWS::SNS::Topic", "AWS::SNS::TopicPolicy"
REPOSITORY = "AWS::ECR::Repository"
PROJECT, MACHINE = "AWS::CodeBuild::Project", "AWS::StepFunctions::StateMachine"
SCHEDULE = """    max: 2
    schedule:
      - {schedule: 'cron(0 7 ? * MON-FRI *)', min: 2, timezone: Europe/Berlin}
      - {schedule: 'cron(0 19 ? * MON-FRI *)', min: 1, timezone: Europe/Berlin}"""
CHATS = {"generator": SCALED}
ASSEMBLIES = ("dev", "local", "everything", "queue", "pools", "volume", *CHATS)


@cache
def folder() -> TemporaryDirectory[str]:
    """Return a folder with every assembly, for the whole session."""
    root = TemporaryDirectory()
    path = Path(root.name)
    for name in ("dev", "local"):
        synthesized(path / name, environment(name), locked(name))
    kinds: dict[str, dict[str, Any]] = {
        "everything": endpoint_settings(CAPTURE, **{"    max: 2": SCHEDULE}),
        "queue": endpoint_settings(QUEUE, **{"    min: 1": "    min: 0"}),
        "pools": endpoint_settings(POOLS),
        "volume": {"ml.g5.xlarge": "ml.c7i.xlarge"},
    }
    for name, endpoint in kinds.items():
        everything(path / name, SETTINGS, endpoint)
    for name, changes in CHATS.items():
        chat = generator(**changes)
        synthesized(path / name, chat.environment, (), generators=[chat])
    return root


@cache
def assembly_folder(name: str) -> Path:
    """Return the cloud assembly of a name."""
    path = Path(folder().name) / name
    return path / "out" if (path / "out").is_dir() else path


@cache
def read(name: str) -> TemplateFiles:
    return read_templates(assembly_folder(name))


@cache
def _keys(name: str) -> dict[str, str]:
    """Return the end of each stack's path, by its template's file name."""
    stacks = read_stacks(assembly_folder(name))
    return {stack.path.name: stack.name for stack in stacks}


def change_templates(name: str, change: Change) -> tuple[list[Template], list[Template]]:
    """Return an assembly's templates with a change, and those of them that changed."""
    before, keys = read(name).templates, _keys(name)
    names = {item.file: keys[Path(item.file).name] for item in before}
    documents = {names[item.file]: json.loads(json.dumps(item.document)) for item in before}
    after = copy.deepcopy(documents)
    change(after)
    templates, different = [], []
    for item in before:
        document = after[names[item.file]]
        new = Template(item.file, document, stack=item.stack)
        templates.append(new)
        if document != documents[names[item.file]]:
            different.append(new)
    return templates, different


def refusals(name: str, change: Change, *, linted: bool = False) -> set[str]:
    """Return the ids of the errors that a changed assembly has; with `linted` cfn-lint's too."""
    templates, different = change_templates(name, change)
    assert different, "the fault changes nothing"
    if linted:
        found = check_files(TemplateFiles(templates=different))
        return {item.rule for item in found if item.severity == "error"}
    return {item.rule for item in own_findings(templates)}


def resources(template: Document, kind: str, text: str = "") -> Iterator[Document]:
    """Yield the resources of a type that hold a text."""
    for resource in template["Resources"].values():
        if resource["Type"] == kind and text in json.dumps(resource):
            yield resource


def one(template: Document, kind: str, text: str = "") -> Document:
    """Return the properties of the first resource of a type that holds a text."""
    return next(resources(template, kind, text))["Properties"]


def alarm(template: Document, name: str) -> Document:
    """Return the properties of the alarm whose name has an end."""
    alarms = (item["Properties"] for item in resources(template, ALARM))
    return next(item for item in alarms if item["AlarmName"].endswith(name))


def statements(template: Document, role: str = "") -> Iterator[tuple[list[Document], Document]]:
    """Yield (list, statement) of a role's own policies and of those beside it."""
    for key, resource in template["Resources"].items():
        own = resource.get("Properties", {})
        beside_role = role in json.dumps(own.get("Roles", []))
        documents = [item["PolicyDocument"] for item in own.get("Policies", [])]
        if resource["Type"] == ROLE and role in key:
            pass
        elif resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy") and beside_role:
            documents = [own["PolicyDocument"]]
        else:
            continue
        for document in documents:
            for statement in list(document["Statement"]):
                yield document["Statement"], statement


def deny(stack: str, action: str, role: str = "", text: str = "") -> Change:
    """Return a change that takes an action out of every statement of a role that holds a text."""

    def change(stacks: Stacks) -> None:
        for siblings, statement in statements(stacks[stack], role):
            actions = statement["Action"]
            actions = [actions] if isinstance(actions, str) else actions
            if action in actions and text in json.dumps(statement):
                statement["Action"] = [item for item in actions if item != action]
                if not statement["Action"]:
                    siblings.remove(statement)

    return change


def replace(stack: str, old: str, new: str, role: str = "") -> Change:
    """Return a change that replaces a text in every statement of a role."""

    def change(stacks: Stacks) -> None:
        for siblings, statement in statements(stacks[stack], role):
            text = json.dumps(statement).replace(old, new)
            siblings[siblings.index(statement)] = json.loads(text)

    return change


def put(stack: str, kind: str, path: str, value: Any, text: str = "") -> Change:
    """Return a change that puts a value at a path of the first resource of a type with a text."""

    def change(stacks: Stacks) -> None:
        holder: Any = one(stacks[stack], kind, text)
        *keys, last = (int(key) if key.isdecimal() else key for key in path.split("."))
        for key in keys:
            holder = holder[key]
        if value is GONE:
            del holder[last]
        else:
            holder[last] = value

    return change


def rewrite(stack: str, kind: str, name: str, old: str, new: str, text: str = "") -> Change:
    """Return a change that replaces a text in one property."""

    def change(stacks: Stacks) -> None:
        properties = one(stacks[stack], kind, text)
        before = json.dumps(properties[name])
        assert old in before
        properties[name] = json.loads(before.replace(old, new))

    return change


Row = tuple[str, str, str, Change]
"""The rule that refuses a fault, the assembly that it is put into, its name, and the change."""
ARN = "arn:aws:sns:us-east-1:111122223333:other"
ELSEWHERE = {"StringEquals": {"aws:SourceAccount": "999999999999"}}
ECR = "111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev"
DEPLOYMENT = "DeploymentConfig.BlueGreenUpdatePolicy"
ROUTING = f"{DEPLOYMENT}.TrafficRoutingConfiguration"
ROLLBACK = "DeploymentConfig.AutoRollbackConfiguration"
VARIANT = "ProductionVariants.0"
ROLLING = "DeploymentConfig.RollingUpdatePolicy"
VARIABLES = "PrimaryContainer.Environment"
STATEMENT = "Policies.0.PolicyDocument.Statement.0"
TRUST = "AssumeRolePolicyDocument.Statement.0"
EXCLUDED = [{"VariantPropertyType": "DesiredInstanceCount"}]


def canary(percent: int = 50, wait: int = 300) -> dict[str, Any]:
    size = {"Type": "CAPACITY_PERCENT", "Value": percent}
    return {"Type": "CANARY", "CanarySize": size, "WaitIntervalInSeconds": wait}


def allow(action: str, resource: str, **more: Any) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def topic_statement(stacks: Stacks, effect: str, **new: Any) -> None:
    """Change the topic policy's statement of an effect; remove it without changes."""
    document = one(stacks[FOUNDATION], TOPIC_POLICY)["PolicyDocument"]
    found = next(item for item in document["Statement"] if item["Effect"] == effect)
    if new:
        found.update(new)
    else:
        document["Statement"].remove(found)


def key_without_cloudwatch(stacks: Stacks) -> None:
    policy = one(stacks[FOUNDATION], KEY)["KeyPolicy"]
    kept = [item for item in policy["Statement"] if "cloudwatch" not in json.dumps(item)]
    policy["Statement"] = kept


def long_period(stacks: Stacks) -> None:
    for query in alarm(stacks[EMBEDDER], "-server-errors")["Metrics"]:
        if "MetricStat" in query:
            query["MetricStat"]["Period"] = 3600


def no_log_group(stacks: Stacks) -> None:
    found = stacks["Images"]["Resources"]
    del found[next(key for key, item in found.items() if item["Type"] == LOGS)]


def passed(stacks: Stacks, **new: Any) -> None:
    """Change the statement by which the state machine passes a role."""
    for role in resources(stacks[BUILDS], ROLE, "iam:PassRole"):
        for policy in role["Properties"]["Policies"]:
            for statement in policy["PolicyDocument"]["Statement"]:
                if statement.get("Sid") == "PassRole":
                    statement.update(new)


ALARMS: list[Row] = [
    (rule, "dev", f"{end} {new}", lambda s, e=end, n=new: alarm(s[EMBEDDER], e).update(n))
    for rule, end, new in (
        ("E9601", "-server-errors", {"EvaluationPeriods": 30, "DatapointsToAlarm": 30}),
        ("E9602", "-disk", {"AlarmActions": [ARN]}),
        ("E9602", "-disk", {"AlarmActions": [
            "arn:aws:sns:eu-west-1:111122223333:roundhouse-dev-alarms"]}),
    )
]  # fmt: skip

ROLLOUTS: list[Row] = [
    ("E9152", "dev", "no wait", put(EMBEDDER, ENDPOINT, ROUTING, canary(wait=0))),
    ("E9152", "dev", "old fleet ends at once",
     put(EMBEDDER, ENDPOINT, f"{DEPLOYMENT}.TerminationWaitInSeconds", 0)),
    ("E9141", "dev", "canary of 80 %", put(EMBEDDER, ENDPOINT, ROUTING, canary(percent=80))),
    ("E9141", "dev", "linear without a step",
     put(EMBEDDER, ENDPOINT, f"{ROUTING}.Type", "LINEAR")),
    ("E9152", "dev", "time shorter than its waits",
     put(EMBEDDER, ENDPOINT, f"{DEPLOYMENT}.MaximumExecutionTimeoutInSeconds", 600)),
    ("E9601", "dev", "shorter than its alarms", put(EMBEDDER, ENDPOINT, ROUTING, canary(wait=60))),
    *(("E9600", "dev", f"rolled back by {name}",
       put(EMBEDDER, ENDPOINT, f"{ROLLBACK}.Alarms.0.AlarmName", name))
      for name in ("dev-text-shared-server-errors", "dev-sentence-embedder-5xx",
                   "arn:aws:cloudwatch:us-east-1:111122223333:alarm:a")),
    ("E9601", "dev", "alarm of a long period", long_period),
    ("E9600", "dev", "alarm that watches another endpoint",
     rewrite(EMBEDDER, ALARM, "Metrics", "dev-sentence-embedder", "dev-text-shared",
             "embedder-server-errors")),
    ("E9147", "dev", "no rollback", put(EMBEDDER, ENDPOINT, ROLLBACK, GONE)),
]  # fmt: skip

SCALING: list[Row] = [
    ("E9153", "dev", "update that resets counts",
     put(EMBEDDER, ENDPOINT, "RetainAllVariantProperties", False)),
    ("E9153", "dev", "update that excludes the count",
     put(EMBEDDER, ENDPOINT, "ExcludeRetainedVariantProperties", EXCLUDED)),
    ("E9131", "dev", "target of another variant",
     put(EMBEDDER, TARGET, "ResourceId", "endpoint/dev-sentence-embedder/variant/Blue")),
    ("E9131", "dev", "policy of another endpoint",
     put(EMBEDDER, POLICY, "ResourceId", "endpoint/dev-text-shared/variant/AllTraffic")),
    ("E9131", "dev", "target of no endpoint",
     put(EMBEDDER, TARGET, "ResourceId", "endpoint/dev-other/variant/AllTraffic")),
    ("E9131", "dev", "variant of no model", put(EMBEDDER, CONFIG, f"{VARIANT}.ModelName", "a-0")),
    ("E9131", "dev", "endpoint of no config", put(EMBEDDER, ENDPOINT, "EndpointConfigName", "a")),
]  # fmt: skip

GENERATION: list[Row] = [
    (rule, "generator", f"{path} {value}", put(CHAT, kind, path, value))
    for rule, kind, path, value in (
        ("E9131", COMPONENT, "EndpointName", "cloud-chit"),
        ("E9131", COMPONENT, "Specification.ModelName", "cloud-0123456789ab"),
        ("E9141", COMPONENT, f"{ROLLING}.MaximumBatchSize",
         {"Type": "CAPACITY_PERCENT", "Value": 100}),
        ("E9152", COMPONENT, f"{ROLLING}.WaitIntervalInSeconds", 0),
        ("E9147", COMPONENT, f"{ROLLBACK}.Alarms", []),
        ("E9600", COMPONENT, f"{ROLLBACK}.Alarms.0.AlarmName", "cloud-chit-errors"),
        ("E9701", MODEL, "PrimaryContainer.ModelDataSource.S3DataSource.S3Uri",
         "s3://roundhouse-cloud-111122223333-us-east-1/checkpoints/0"),
    )
]  # fmt: skip

LACKING: list[Row] = [
    (rule, assembly, f"{stack} {role} lacks {action} {text}", deny(stack, action, role, text))
    for rule, assembly, stack, role, action, text in (
        ("E9701", "dev", EMBEDDER, "Role", "kms:Decrypt", ""),
        ("E9701", "dev", EMBEDDER, "Role", "ecr:GetAuthorizationToken", ""),
        ("E9701", "dev", EMBEDDER, "", "ecr:BatchGetImage", ""),
        ("E9701", "dev", EMBEDDER, "Role", "logs:PutLogEvents", ""),
        ("E9701", "dev", EMBEDDER, "Role", "logs:CreateLogStream", ""),
        ("E9701", "dev", EMBEDDER, "Role", "cloudwatch:DescribeAlarms", ""),
        ("E9701", "dev", EMBEDDER, "Role", "cloudwatch:PutMetricData", ""),
        ("E9701", "dev", TEXT, "", "s3:GetObject", ""),
        ("E9701", "dev", TEXT, "", "s3:ListBucket", ""),
        ("E9701", "everything", EXAMPLE, "Role", "s3:PutObject", ""),
        ("E9701", "everything", EXAMPLE, "Role", "kms:GenerateDataKey", "s3.us-east-1"),
        ("E9701", "everything", EXAMPLE, "Role", "ec2:CreateNetworkInterface", ""),
        ("E9701", "everything", EXAMPLE, "Role", "ec2:DeleteNetworkInterfacePermission", ""),
        ("E9701", "everything", EXAMPLE, "Role", "ec2:DescribeSubnets", ""),
        ("E9701", "queue", EXAMPLE, "Role", "s3:PutObject", ""),
        ("E9702", "queue", EXAMPLE, "Role", "s3:GetObject", "requests/"),
        ("E9701", "queue", EXAMPLE, "Role", "sns:Publish", ""),
        ("E9701", "queue", EXAMPLE, "Role", "kms:GenerateDataKey", "sns.us-east-1"),
        ("E9701", "volume", EXAMPLE, "Role", "kms:CreateGrant", ""),
        ("E9703", "everything", BUILDS, "CpuRole", "kms:Decrypt", ""),
        ("E9703", "everything", BUILDS, "GpuRole", "ecr:GetAuthorizationToken", ""),
        ("E9703", "everything", BUILDS, "CpuRole", "logs:PutLogEvents", ""),
        ("E9703", "everything", BUILDS, "GpuRole", "s3:PutObject", ""),
        ("E9703", "everything", BUILDS, "CpuRole", "s3:GetObject", ""),
        ("E9703", "everything", BUILDS, "CpuRole", "ec2:CreateNetworkInterface", ""),
        ("E9705", "everything", BUILDS, "JobRole", "logs:CreateLogStream", ""),
        ("E9705", "everything", BUILDS, "JobRole", "ecr:GetDownloadUrlForLayer", ""),
        ("E9703", "everything", "Images", "Role", "ecr:PutImage", ""),
        ("E9704", "everything", BUILDS, "MachineRole", "states:StartExecution", ""),
        ("E9704", "everything", BUILDS, "MachineRole", "codebuild:StartBuild", ""),
        ("E9704", "everything", BUILDS, "MachineRole", "sagemaker:DescribeTrainingJob", ""),
        ("E9704", "everything", BUILDS, "MachineRole", "iam:PassRole", ""),
        ("E9704", "everything", BUILDS, "MachineRole", "sns:Publish", ""),
        ("E9704", "everything", BUILDS, "MachineRole", "kms:GenerateDataKey", ""),
    )
]

MISPLACED: list[Row] = [
    (rule, assembly, f"{stack} {role} {new}", replace(stack, old, new, role))
    for rule, assembly, stack, role, old, new in (
        ("E9701", "dev", EMBEDDER, "Role", "s3.us-east-1", "s3.eu-west-1"),
        ("E9701", "dev", EMBEDDER, "Role", "alias/roundhouse-dev", "alias/roundhouse-prod"),
        ("E9701", "dev", EMBEDDER, "Role", "Endpoints/dev-sentence-embedder", "Endpoints/dev-x"),
        ("E9701", "dev", EMBEDDER, "Role", "alarm:dev-sentence-embedder", "alarm:dev-other"),
        ("E9701", "everything", EXAMPLE, "Role", "/captures/cloud-example/", "/captures/another/"),
        ("E9701", "queue", EXAMPLE, "Role", "/answers/cloud-example/", "/answers/another/"),
        ("E9703", "everything", BUILDS, "CpuRole", "/networks/", "/graphs/"),
        ("E9706", "everything", BUILDS, "MachineRole", "sagemaker.amazonaws.com",
         "ecs.amazonaws.com"),
        ("E9704", "everything", BUILDS, "MachineRole", "roundhouse-cloud-build-gpu",
         "roundhouse-cloud-build-tpu"),
    )
]  # fmt: skip

IDENTITIES: list[Row] = [
    ("E9700", "dev", "SourceAccount", put(EMBEDDER, ROLE, f"{TRUST}.Condition", ELSEWHERE)),
    ("E9707", "everything", "build's account", put(BUILDS, ROLE, f"{TRUST}.Condition", ELSEWHERE)),
    ("E9700", "dev", "another service",
     put(EMBEDDER, ROLE, f"{TRUST}.Principal", {"Service": "ec2.amazonaws.com"})),
    ("E9226", "dev", "trust without a condition", put(EMBEDDER, ROLE, f"{TRUST}.Condition", GONE)),
    ("E9224", "dev", "role passed to any service", lambda s: passed(s, Condition={})),
    ("E9224", "dev", "any role passed",
     lambda s: passed(s, Resource=["arn:aws:iam::111122223333:role/*"])),
    *((rule, "dev", name, put(EMBEDDER, ROLE, STATEMENT, statement))
      for rule, name, statement in (
          ("E9220", "a service", allow("s3:*", "arn:aws:s3:::a/b")),
          ("E9220", "all actions", allow("*", "arn:aws:s3:::a/b")),
          ("E9222", "every resource", allow("s3:GetObject", "*")),
          ("E9223", "every key", allow("kms:Decrypt", "arn:aws:kms:us-east-1:111122223333:key/*")),
      )),
    ("E9225", "dev", "full access",
     put(EMBEDDER, ROLE, "ManagedPolicyArns",
         ["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"])),
    ("E9227", "dev", "open repository",
     put(FOUNDATION, REPOSITORY, "RepositoryPolicyText",
         {"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "ecr:BatchGetImage"}]})),
]  # fmt: skip

BUILD_FAULTS: list[Row] = [
    (rule, "everything", name, change)
    for rule, name, change in (
        ("E9703", "log group that no stack has",
         put(BUILDS, PROJECT, "LogsConfig.CloudWatchLogs.GroupName", "/aws/codebuild/other")),
        ("E9405", "no retention", put(BUILDS, LOGS, "RetentionInDays", GONE)),
        ("E9703", "no log group", no_log_group),
    )
]  # fmt: skip

STORES: list[Row] = [
    ("E9403", "dev", "bucket without TLS",
     put(FOUNDATION, "AWS::S3::BucketPolicy", "PolicyDocument.Statement", [])),
    ("E9403", "dev", "topic without TLS", lambda s: topic_statement(s, "Deny")),
    ("E9603", "dev", "topic without its publisher", lambda s: topic_statement(s, "Allow")),
    *(("E9603", "dev", f"topic of {new}", lambda s, n=new: topic_statement(s, "Allow", **n))
      for new in ({"Principal": {"Service": "events.amazonaws.com"}}, {"Condition": ELSEWHERE},
                  {"Resource": ARN})),
    ("E9603", "dev", "key that alarms may not use", key_without_cloudwatch),
    ("E9401", "everything", "SNS's key",
     put(FOUNDATION, TOPIC, "KmsMasterKeyId", "alias/aws/sns")),
    ("E9401", "dev", "no key of the topic", put(FOUNDATION, TOPIC, "KmsMasterKeyId", GONE)),
    ("E9401", "dev", "S3's key",
     put(FOUNDATION, BUCKET,
         "BucketEncryption.ServerSideEncryptionConfiguration.0.ServerSideEncryptionByDefault",
         {"SSEAlgorithm": "aws:kms"})),
    ("E9401", "dev", "key that does not rotate", put(FOUNDATION, KEY, "EnableKeyRotation", False)),
    ("E9402", "dev", "no versions",
     put(FOUNDATION, BUCKET, "VersioningConfiguration.Status", "Suspended")),
    ("E9402", "dev", "public", put(FOUNDATION, BUCKET, "PublicAccessBlockConfiguration", GONE)),
    ("E9404", "everything", "moving tags",
     put(FOUNDATION, REPOSITORY, "ImageTagMutability", "MUTABLE")),
    ("E9404", "everything", "no scans",
     put(FOUNDATION, REPOSITORY, "ImageScanningConfiguration.ScanOnPush", False)),
    *(("E9400", "dev", f"{kind} {key}",
       lambda s, k=kind, name=key: next(resources(s[FOUNDATION], k)).pop(name))
      for kind in (BUCKET, KEY, REPOSITORY) for key in ("DeletionPolicy", "UpdateReplacePolicy")),
    ("E9406", "dev", "archives that expire",
     put(FOUNDATION, BUCKET, "LifecycleConfiguration.Rules.0",
         {"Id": "all", "Status": "Enabled", "Prefix": "", "ExpirationInDays": 9})),
    ("E9407", "dev", "secret", put(EMBEDDER, MODEL, f"{VARIABLES}.API_KEY", "0123456789")),
    ("E9129", "everything", "captures without a key",
     put(EXAMPLE, CONFIG, "DataCaptureConfig.KmsKeyId", GONE)),
    ("E9129", "queue", "answers without a key",
     put(EXAMPLE, CONFIG, "AsyncInferenceConfig.OutputConfig.KmsKeyId", GONE)),
    ("E9701", "everything", "captures with another key",
     put(EXAMPLE, CONFIG, "DataCaptureConfig.KmsKeyId", "alias/other")),
    ("E9701", "dev", "repository that no stack has",
     put(EMBEDDER, MODEL, "PrimaryContainer.Image", f"{ECR}/tritn:e1")),
    ("E9701", "dev", "archive of another bucket",
     put(EMBEDDER, MODEL, "PrimaryContainer.ModelDataUrl", "s3://other/engines/a/model.tar.gz")),
    ("E9701", "dev", "archive that the role may not read",
     put(EMBEDDER, MODEL, "PrimaryContainer.ModelDataUrl",
         "s3://roundhouse-dev-111122223333-us-east-1/engines/other/model.tar.gz")),
    ("E9108", "dev", "no isolation", put(EMBEDDER, MODEL, "EnableNetworkIsolation", False)),
    ("E9108", "dev", "isolation left out", put(EMBEDDER, MODEL, "EnableNetworkIsolation", GONE)),
    ("E9131", "dev", "two endpoints of one name",
     put(TEXT, ENDPOINT, "EndpointName", "dev-sentence-embedder")),
]  # fmt: skip

LINTED: list[Row] = [
    ("W3037", "dev", "action that IAM does not have",
     put(EMBEDDER, ROLE, STATEMENT, allow("ecr:BatchGetImages", "arn:aws:ecr:us-east-1:1:a"))),
]  # fmt: skip
FAULTS = [*ALARMS, *ROLLOUTS, *SCALING, *GENERATION, *LACKING, *MISPLACED,
          *IDENTITIES, *BUILD_FAULTS, *STORES]  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "assembly", "change"),
    [pytest.param(rule, assembly, change, id=f"{rule} {name}")
     for rule, assembly, name, change in FAULTS],
)  # fmt: skip
def test_refuses_fault(rule, assembly, change):
    assert rule in refusals(assembly, change)


@pytest.mark.parametrize(("rule", "assembly", "name", "change"), LINTED)
def test_cfn_lint_refuses_fault(rule, assembly, name, change):
    assert rule in refusals(assembly, change, linted=True)


def test_every_rule_refuses_a_fault():
    from template_rules.findings import own_rules

    assert {rule.id for rule in own_rules()} == {rule for rule, *_ in FAULTS}


@pytest.mark.parametrize("name", ASSEMBLIES)
def test_endpoints_of_every_kind_have_no_finding(name):
    assert [str(finding) for finding in check_files(read(name))] == []


@pytest.mark.parametrize("name", ["dev", "local"])
def test_environment_without_a_lock_has_no_finding(tmp_path, name):
    synthesized(tmp_path, environment(name), unlocked(name))
    assert [str(finding) for finding in check(tmp_path)] == []
