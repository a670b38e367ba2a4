"""Changes that a person makes by hand in an account, one kind each, and what drift calls them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from onboarding.names import artifact_bucket
from roundhouse.gitops.drift.stack import read_stack
from tests.local_cloud.account import MOMENT_SECONDS, until
from tests.local_cloud.tiny_session import archive_bytes, publish

TRACKING = "TargetTrackingScalingPolicyConfiguration"
METRIC = "SageMakerVariantConcurrentRequestsPerModelHighResolution"
ALARMS = {
    "latency": {"Threshold": 1.0},
    "ceiling": {"EvaluationPeriods": 9},
    "disk": {"AlarmActions": []},
    "no-answers": {"ActionsEnabled": False},
    "host-memory": {"Statistic": "Average"},
    "saturation": {"TreatMissingData": "breaching"},
    "drift": {"ComparisonOperator": "LessThanThreshold"},
    "client-errors": {"OKActions": []},
    "server-errors": {"DatapointsToAlarm": 1},
}
STATEMENT = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*", "Principal": "*"}


@dataclass(frozen=True, kw_only=True)
class Found:
    """One difference that drift must report: under which part, and by which name."""

    part: str
    what: str


Change = Callable[["Account"], Iterator[Found]]


class Account:
    """The deployed environment, through the clients that a person would use."""

    def __init__(self, session: Any, templates: Any, entry: Any) -> None:
        self.session, self.clients, self.entry = session, session.clients, entry
        self.stacks = {
            name.removeprefix("roundhouse-local-").removeprefix("endpoint-"): read_stack(
                session.clients("cloudformation"), session.environment, name, name, template
            )
            for name, template in templates.items()
        }

    def resource(self, part: str, kind: str) -> tuple[str, dict[str, Any]]:
        """The first resource of a type: its physical id and properties."""
        return next(self.stacks[part].resources(f"AWS::{kind}"))

    def settled(self, endpoint: str) -> None:
        """Wait until an endpoint can be changed."""
        describe = self.clients("sagemaker").describe_endpoint
        assert until(
            lambda: describe(EndpointName=endpoint)["EndpointStatus"] == "InService",
            MOMENT_SECONDS,
        )


def scalable_target(endpoint: str) -> dict[str, str]:
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/local-{endpoint}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }


def function_zip(code: str) -> bytes:
    """Return the zip of a function's one file."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as files:
        files.writestr("index.py", code)
    return content.getvalue()


def change_alarms(account: Account) -> Iterator[Found]:
    cloudwatch = account.clients("cloudwatch")
    shape = cloudwatch.meta.service_model.operation_model("PutMetricAlarm").input_shape.members
    for name, changes in ALARMS.items():
        alarm = f"local-tiny-{name}"
        (live,) = cloudwatch.describe_alarms(AlarmNames=[alarm])["MetricAlarms"]
        kept = {key: value for key, value in live.items() if key in shape}
        cloudwatch.put_metric_alarm(**{**kept, **changes})
        yield Found(part="tiny", what=f"{next(iter(changes))} of alarm {alarm}")
    cloudwatch.delete_alarms(AlarmNames=["local-tiny-no-instances"])
    yield Found(part="tiny", what="alarm local-tiny-no-instances")


def change_scaling(account: Account) -> Iterator[Found]:
    scaling = account.clients("application-autoscaling")
    state = {"DynamicScalingInSuspended": True, "DynamicScalingOutSuspended": False,
             "ScheduledScalingSuspended": False}  # fmt: skip
    target = scalable_target("tiny")
    scaling.register_scalable_target(
        **target, MinCapacity=1, MaxCapacity=2, SuspendedState=state
    )  # fmt: skip
    yield Found(part="tiny", what="bounds of AllTraffic")
    yield Found(part="tiny", what="suspended scaling of AllTraffic")
    policies = scaling.describe_scaling_policies(ServiceNamespace="sagemaker")["ScalingPolicies"]
    by_name = {item["PolicyName"]: item[TRACKING] for item in policies}
    name, kind = "local-tiny-invocations", "TargetTrackingScaling"
    changed = by_name[name] | {"TargetValue": 5.0, "ScaleInCooldown": 7}
    added = changed | {"PredefinedMetricSpecification": {"PredefinedMetricType": METRIC}}
    for policy, configuration in ((name, changed), ("by-hand", added)):
        scaling.put_scaling_policy(
            PolicyName=policy, **target, PolicyType=kind, **{TRACKING: configuration}
        )
        yield Found(part="tiny", what=f"scaling policy {policy}")
    scaling.deregister_scalable_target(**scalable_target("other"))
    for what in ("scaling of AllTraffic", "scaling policy local-other-invocations"):
        yield Found(part="other", what=what)


def change_schedules(account: Account) -> Iterator[Found]:
    scaling = account.clients("application-autoscaling")
    actions = scaling.describe_scheduled_actions(ServiceNamespace="sagemaker")["ScheduledActions"]
    names = {item["ResourceId"].split("/")[1]: item["ScheduledActionName"] for item in actions}
    bounds = {"MinCapacity": 3, "MaxCapacity": 3}
    for name in (names["local-tiny"], "by-hand"):
        scaling.put_scheduled_action(
            ScheduledActionName=name, Schedule=actions[0]["Schedule"],
            ScalableTargetAction=bounds, **scalable_target("tiny"),
        )  # fmt: skip
        yield Found(part="tiny", what=f"schedule {name} of AllTraffic")


def change_endpoints(account: Account) -> Iterator[Found]:
    sagemaker = account.clients("sagemaker")
    account.settled("local-tiny")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredWeight": 0.5}],
    )
    yield Found(part="tiny", what="weight of AllTraffic")
    _, config = account.resource("other", "SageMaker::EndpointConfig")
    other = {**config, "EndpointConfigName": "by-hand"}
    sagemaker.create_endpoint_config(**other)
    account.settled("local-other")
    sagemaker.update_endpoint(EndpointName="local-other", EndpointConfigName="by-hand")
    account.settled("local-other")
    yield Found(part="other", what="endpoint config")
    for endpoint in ("tiny", "other"):
        arn, _ = account.resource(endpoint, "SageMaker::Endpoint")
        if endpoint == "tiny":
            sagemaker.delete_tags(ResourceArn=arn, TagKeys=["roundhouse-endpoint"])
        else:
            sagemaker.add_tags(
                ResourceArn=arn, Tags=[{"Key": "roundhouse-endpoint", "Value": "mine"}]
            )
        yield Found(part=endpoint, what="tag roundhouse-endpoint of endpoint")


def change_configs(account: Account) -> Iterator[Found]:
    """Neither configs nor models can be updated: a person deletes one and creates it again."""
    sagemaker = account.clients("sagemaker")
    _, config = account.resource("other", "SageMaker::EndpointConfig")
    name = config["EndpointConfigName"]
    sagemaker.delete_endpoint_config(EndpointConfigName=name)
    capture = {**config["DataCaptureConfig"], "InitialSamplingPercentage": 99}
    (variant,) = config["ProductionVariants"]
    metrics = {**config["MetricsConfig"], "EnableDetailedObservability": False}
    sagemaker.create_endpoint_config(**{
        **config, "DataCaptureConfig": capture, "MetricsConfig": metrics,
        "ProductionVariants": [{**variant, "InstanceType": "ml.c7i.xlarge"}],
    })  # fmt: skip
    yield Found(part="other", what=f"DataCaptureConfig of {name}")
    yield Found(part="other", what=f"MetricsConfig of {name}")
    yield Found(part="other", what=f"ProductionVariants of {name}")
    _, config = account.resource("tiny", "SageMaker::EndpointConfig")
    sagemaker.delete_endpoint_config(EndpointConfigName=config["EndpointConfigName"])
    yield Found(part="tiny", what=f"endpoint config {config['EndpointConfigName']}")


def change_models(account: Account) -> Iterator[Found]:
    sagemaker = account.clients("sagemaker")
    _, model = account.resource("other", "SageMaker::Model")
    name, image = model["ModelName"], "000000000000.dkr.ecr.us-east-1.amazonaws.com/mine:1"
    changes = {"Environment": {"BY_HAND": "1"}, "Image": image}
    container = {**model["PrimaryContainer"], **changes}
    sagemaker.delete_model(ModelName=name)
    sagemaker.create_model(**{
        **model, "PrimaryContainer": container, "EnableNetworkIsolation": False
    })  # fmt: skip
    for what in (*changes, "EnableNetworkIsolation"):
        yield Found(part="other", what=f"{what} of model {name}")
    _, model = account.resource("tiny", "SageMaker::Model")
    sagemaker.delete_model(ModelName=model["ModelName"])
    yield Found(part="tiny", what=f"model {model['ModelName']}")


def change_roles(account: Account) -> Iterator[Found]:
    iam = account.clients("iam")
    name, properties = account.resource("tiny", "IAM::Role")
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*",
                                                        "Resource": "*"}]}  # fmt: skip
    for policy in ("exact", "by-hand"):
        iam.put_role_policy(
            RoleName=name, PolicyName=policy, PolicyDocument=json.dumps(document)
        )  # fmt: skip
        yield Found(part="tiny", what=f"policy {policy} of role {name}")
    _, version = account.resource("tiny", "IAM::Policy")
    iam.delete_role_policy(RoleName=name, PolicyName=version["PolicyName"])
    yield Found(part="tiny", what=f"policy {version['PolicyName']} of role {name}")
    made = iam.create_policy(PolicyName="by-hand", PolicyDocument=json.dumps(document))
    iam.attach_role_policy(RoleName=name, PolicyArn=made["Policy"]["Arn"])
    yield Found(part="tiny", what=f"managed policies of role {name}")
    iam.put_role_permissions_boundary(RoleName=name, PermissionsBoundary=made["Policy"]["Arn"])
    yield Found(part="tiny", what=f"permissions boundary of role {name}")
    trust = json.loads(json.dumps(properties["AssumeRolePolicyDocument"]))
    trust["Statement"][0].pop("Condition")
    iam.update_assume_role_policy(RoleName=name, PolicyDocument=json.dumps(trust))
    yield Found(part="tiny", what=f"trust policy of role {name}")
    iam.untag_role(RoleName=name, TagKeys=["roundhouse-environment"])
    yield Found(part="tiny", what=f"tag roundhouse-environment of role {name}")


def change_bucket(account: Account) -> Iterator[Found]:
    s3, bucket = account.clients("s3"), artifact_bucket(account.session.environment)
    s3.delete_public_access_block(Bucket=bucket)
    yield Found(part="foundation", what=f"PublicAccessBlockConfiguration of Bucket {bucket}")
    policy = {"Version": "2012-10-17", "Statement": [STATEMENT]}
    s3.put_bucket_policy(Bucket=bucket, Policy=json.dumps(policy))
    name, _ = account.resource("foundation", "S3::BucketPolicy")
    yield Found(part="foundation", what=f"PolicyDocument of BucketPolicy {name}")
    s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Suspended"})
    yield Found(part="foundation", what=f"VersioningConfiguration of Bucket {bucket}")
    data = archive_bytes(account.session, account.entry)
    publish(account.session, account.entry, data[:-1] + bytes([data[-1] ^ 1]))
    yield Found(part="tiny", what=f"sha256 of {account.entry.archive.path}")


def change_key_and_topics(account: Account) -> Iterator[Found]:
    kms, sns = account.clients("kms"), account.clients("sns")
    key, properties = account.resource("foundation", "KMS::Key")
    kms.disable_key_rotation(KeyId=key)
    yield Found(part="foundation", what=f"EnableKeyRotation of Key {key}")
    policy = json.loads(json.dumps(properties["KeyPolicy"]))
    policy["Statement"].pop()
    kms.put_key_policy(KeyId=key, PolicyName="default", Policy=json.dumps(policy))
    yield Found(part="foundation", what=f"KeyPolicy of Key {key}")
    arn, _ = account.resource("foundation", "SNS::Subscription")
    sns.unsubscribe(SubscriptionArn=arn)
    yield Found(
        part="foundation", what=f"Endpoint of Subscription {arn.rpartition(':')[2]}"
    )  # fmt: skip
    name, policy = account.resource("foundation", "SNS::TopicPolicy")
    open_policy = {"Version": "2012-10-17", "Statement": [{**STATEMENT, "Action": "sns:Publish"}]}
    sns.set_topic_attributes(
        TopicArn=policy["Topics"][0], AttributeName="Policy",
        AttributeValue=json.dumps(open_policy),
    )  # fmt: skip
    yield Found(part="foundation", what=f"PolicyDocument of TopicPolicy {name}")


def change_builds(account: Account) -> Iterator[Found]:
    name, _ = account.resource("builds", "CodeBuild::Project")
    codebuild = account.clients("codebuild")
    (project,) = codebuild.batch_get_projects(names=[name])["projects"]
    environment = {**project["environment"], "image": "mine:1"}
    codebuild.update_project(name=name, environment=environment, timeoutInMinutes=5)
    for what in ("Environment", "TimeoutInMinutes"):
        yield Found(part="builds", what=f"{what} of Project {name}")
    arn, _ = account.resource("builds", "StepFunctions::StateMachine")
    definition = {"StartAt": "Done", "States": {"Done": {"Type": "Succeed"}}}
    account.clients("stepfunctions").update_state_machine(
        stateMachineArn=arn, definition=json.dumps(definition)
    )
    name = arn.rpartition(":")[2]
    yield Found(part="builds", what=f"DefinitionString of StateMachine {name}")
    name, function = account.resource("builds", "Lambda::Function")
    mine = {"Variables": {**function["Environment"]["Variables"], "BY_HAND": "1"}}
    account.clients("lambda").update_function_configuration(FunctionName=name, Environment=mine)
    yield Found(part="builds", what=f"Environment of Function {name}")
    account.clients("lambda").update_function_code(FunctionName=name, ZipFile=function_zip("pass"))
    yield Found(part="builds", what=f"Code of Function {name}")
    logs = account.clients("logs")
    name, _ = account.resource("builds", "Logs::LogGroup")
    logs.put_retention_policy(logGroupName=name, retentionInDays=1)
    yield Found(part="builds", what=f"RetentionInDays of LogGroup {name}")
    name, _ = account.resource("images", "Logs::LogGroup")
    logs.delete_log_group(logGroupName=name)
    yield Found(part="images", what=f"LogGroup {name}")
    ecr = account.clients("ecr")
    (kept, _), (gone, _) = list(account.stacks["foundation"].resources("AWS::ECR::Repository"))[:2]
    ecr.put_image_tag_mutability(repositoryName=kept, imageTagMutability="MUTABLE")
    yield Found(part="foundation", what=f"ImageTagMutability of Repository {kept}")
    ecr.delete_repository(repositoryName=gone, force=True)
    yield Found(part="foundation", what=f"Repository {gone}")


def change_dashboards_and_stacks(account: Account) -> Iterator[Found]:
    cloudwatch = account.clients("cloudwatch")
    name, _ = account.resource("observability", "CloudWatch::Dashboard")
    cloudwatch.put_dashboard(DashboardName=name, DashboardBody='{"widgets": []}')
    yield Found(part="observability", what=f"DashboardBody of Dashboard {name}")
    name, _ = account.resource("tiny", "CloudWatch::Dashboard")
    cloudwatch.delete_dashboards(DashboardNames=[name])
    yield Found(part="tiny", what=f"Dashboard {name}")
    for part in ("foundation", "other"):
        account.clients("cloudformation").update_termination_protection(
            StackName=account.stacks[part].name, EnableTerminationProtection=False
        )
        yield Found(part=part, what="termination protection")


CHANGES: tuple[Change, ...] = (
    change_alarms,
    change_scaling,
    change_schedules,
    change_endpoints,
    change_configs,
    change_models,
    change_roles,
    change_bucket,
    change_key_and_topics,
    change_builds,
    change_dashboards_and_stacks,
)
