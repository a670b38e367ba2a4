"""33 single faults put into a sound template of one stack."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Document = dict[str, Any]
Change = Callable[[Document], None]


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One fault."""

    name: str
    change: Change

    def of(self, document: Document) -> Document:
        """The template with the fault."""
        changed = copy.deepcopy(document)
        self.change(changed)
        return changed


MUTATIONS: list[Mutation] = []


def mutation(name: str) -> Callable[[Change], Change]:
    """Adds a mutation to the table."""

    def add(change: Change) -> Change:
        MUTATIONS.append(Mutation(name=name, change=change))
        return change

    return add


def resource(document: Document, resource_type: str) -> Document:
    """The first resource of a type."""
    return next(item for item in document["Resources"].values() if item["Type"] == resource_type)


def properties(document: Document, resource_type: str) -> Document:
    """The properties of the first resource of a type."""
    return resource(document, resource_type)["Properties"]


def variant(document: Document) -> Document:
    """The first production variant."""
    return properties(document, "AWS::SageMaker::EndpointConfig")["ProductionVariants"][0]


def policy(document: Document) -> Document:
    """The first target tracking configuration with a predefined metric."""
    found = [
        item["Properties"]
        for item in document["Resources"].values()
        if item["Type"].endswith("::ScalingPolicy")
    ]
    return next(
        item["TargetTrackingScalingPolicyConfiguration"]
        for item in found
        if "PredefinedMetricSpecification" in item["TargetTrackingScalingPolicyConfiguration"]
    )


def statement(document: Document) -> Document:
    """The first statement of the first role with policies."""
    roles = [
        item["Properties"]
        for item in document["Resources"].values()
        if item["Type"] == "AWS::IAM::Role"
    ]
    return next(role for role in roles if "Policies" in role)["Policies"][0]["PolicyDocument"][
        "Statement"
    ][0]


@mutation("bad instance type")
def bad_instance_type(document):
    variant(document)["InstanceType"] = "ml.g5.tiny"


@mutation("missing VariantName")
def missing_variant_name(document):
    del variant(document)["VariantName"]


@mutation("non-integer count")
def non_integer_count(document):
    variant(document)["InitialInstanceCount"] = "one"


@mutation("bad Mode")
def bad_mode(document):
    properties(document, "AWS::SageMaker::Model")["PrimaryContainer"]["Mode"] = "ManyModels"


@mutation("unknown property")
def unknown_property(document):
    properties(document, "AWS::SageMaker::Endpoint")["InstanceType"] = "ml.g5.xlarge"


@mutation("missing EndpointConfigName")
def missing_endpoint_config_name(document):
    del properties(document, "AWS::SageMaker::Endpoint")["EndpointConfigName"]


@mutation("bad endpoint name")
def bad_endpoint_name(document):
    properties(document, "AWS::SageMaker::Endpoint")["EndpointName"] = "dev_sentence_embedder"


@mutation("too long endpoint name")
def too_long_endpoint_name(document):
    properties(document, "AWS::SageMaker::Endpoint")["EndpointName"] = "e" * 80


@mutation("bad ScalableDimension")
def bad_scalable_dimension(document):
    properties(document, "AWS::ApplicationAutoScaling::ScalableTarget")["ScalableDimension"] = (
        "sagemaker:variant:InstanceCount"
    )


@mutation("bad predefined metric")
def bad_predefined_metric(document):
    policy(document)["PredefinedMetricSpecification"]["PredefinedMetricType"] = (
        "SageMakerInvocations"
    )


@mutation("missing TargetValue")
def missing_target_value(document):
    del policy(document)["TargetValue"]


@mutation("bad alarm operator")
def bad_alarm_operator(document):
    properties(document, "AWS::CloudWatch::Alarm")["ComparisonOperator"] = "GreaterThan"


@mutation("CodeBuild timeout > 2160")
def code_build_timeout(document):
    properties(document, "AWS::CodeBuild::Project")["TimeoutInMinutes"] = 3000


@mutation("dangling Ref")
def dangling_ref(document):
    properties(document, "AWS::Lambda::Permission")["FunctionName"] = {"Ref": "NoFunction"}


@mutation("bad GetAtt")
def bad_get_att(document):
    properties(document, "AWS::SageMaker::Model")["ExecutionRoleArn"]["Fn::GetAtt"][1] = "RoleArn"


@mutation("circular dependency")
def circular_dependency(document):
    resource(document, "AWS::IAM::Role")["DependsOn"] = "FailedBuilds"
    resource(document, "AWS::Events::Rule")["DependsOn"] = [
        next(key for key, item in document["Resources"].items() if item["Type"] == "AWS::IAM::Role")
    ]


@mutation("bad bucket name")
def bad_bucket_name(document):
    properties(document, "AWS::S3::Bucket")["BucketName"] = "Artifacts_Of_Dev"


@mutation("bad Step Functions StartAt")
def bad_start_at(document):
    document["Resources"]["Machine"] = {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {
            "RoleArn": {"Fn::GetAtt": ["FunctionRole", "Arn"]},
            "DefinitionString": '{"StartAt": "Begin", "States": {"Start": {"Type": "Succeed"}}}',
        },
    }


@mutation("bad Lambda runtime")
def bad_lambda_runtime(document):
    properties(document, "AWS::Lambda::Function")["Runtime"] = "python3.99"


@mutation("bad SSM type")
def bad_ssm_type(document):
    properties(document, "AWS::SSM::Parameter")["Type"] = "Text"


@mutation("alarm Period=45")
def alarm_period(document):
    alarms = [
        item["Properties"]
        for item in document["Resources"].values()
        if item["Type"] == "AWS::CloudWatch::Alarm"
    ]
    next(item for item in alarms if "Period" in item)["Period"] = 45


@mutation("misspelt IAM action")
def misspelt_action(document):
    statement(document)["Action"] = ["ecr:BatchGetImages"]


@mutation("invalid EventPattern")
def invalid_event_pattern(document):
    properties(document, "AWS::Events::Rule")["EventPattern"] = {"source": "aws.codebuild"}


@mutation("MinCapacity > MaxCapacity")
def minimum_over_maximum(document):
    target = properties(document, "AWS::ApplicationAutoScaling::ScalableTarget")
    target["MinCapacity"], target["MaxCapacity"] = 9, 2


@mutation("ResourceId not naming a variant")
def resource_id_without_variant(document):
    target = properties(document, "AWS::ApplicationAutoScaling::ScalableTarget")
    target["ResourceId"] = target["ResourceId"].split("/variant/")[0]


@mutation("policy with both metric kinds")
def both_metric_kinds(document):
    policy(document)["CustomizedMetricSpecification"] = {
        "Namespace": "AWS/SageMaker",
        "MetricName": "InvocationsPerInstance",
        "Statistic": "Sum",
    }


@mutation("two endpoints with one name")
def two_endpoints_with_one_name(document):
    first, second = [
        item["Properties"]
        for item in document["Resources"].values()
        if item["Type"] == "AWS::SageMaker::Endpoint"
    ][:2]
    second["EndpointName"] = first["EndpointName"]


@mutation("Model without ExecutionRoleArn")
def model_without_role(document):
    del properties(document, "AWS::SageMaker::Model")["ExecutionRoleArn"]


@mutation("CodeBuild type LINUX_GPU")
def code_build_type(document):
    properties(document, "AWS::CodeBuild::Project")["Environment"]["Type"] = "LINUX_GPU"


@mutation("invalid dashboard JSON")
def invalid_dashboard(document):
    dashboard = properties(document, "AWS::CloudWatch::Dashboard")
    dashboard["DashboardBody"] = str(dashboard["DashboardBody"])[:-1]


@mutation("IAM *:*")
def everything_allowed(document):
    statement(document).update({"Action": "*", "Resource": "*"})


@mutation("bucket without encryption")
def bucket_without_encryption(document):
    del properties(document, "AWS::S3::Bucket")["BucketEncryption"]


@mutation("bucket without public access block")
def bucket_without_block(document):
    del properties(document, "AWS::S3::Bucket")["PublicAccessBlockConfiguration"]
