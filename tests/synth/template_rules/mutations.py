"""33 single faults put into a sound template of one stack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Document = dict[str, Any]
Change = Callable[[Document], object]


def resources(document: Document, kind: str) -> Iterator[Document]:
    """Every resource of a type."""
    return (item for item in document["Resources"].values() if item["Type"] == f"AWS::{kind}")


def properties(document: Document, kind: str) -> Document:
    """The properties of the first resource of a type."""
    return next(resources(document, kind))["Properties"]


def endpoint(document: Document) -> Document:
    return properties(document, "SageMaker::Endpoint")


def variant(document: Document) -> Document:
    """The first production variant."""
    return properties(document, "SageMaker::EndpointConfig")["ProductionVariants"][0]


def target(document: Document) -> Document:
    return properties(document, "ApplicationAutoScaling::ScalableTarget")


def policy(document: Document) -> Document:
    """The first target tracking configuration with a predefined metric."""
    tracking = (
        item["Properties"]["TargetTrackingScalingPolicyConfiguration"]
        for item in resources(document, "ApplicationAutoScaling::ScalingPolicy")
    )
    return next(item for item in tracking if "PredefinedMetricSpecification" in item)


def statement(document: Document) -> Document:
    """The first statement of the first role with policies."""
    roles = (item["Properties"] for item in resources(document, "IAM::Role"))
    policies = next(role["Policies"] for role in roles if "Policies" in role)
    return policies[0]["PolicyDocument"]["Statement"][0]


def circular_dependency(document: Document) -> None:
    role = next(
        key for key, item in document["Resources"].items() if item["Type"] == "AWS::IAM::Role"
    )
    document["Resources"][role]["DependsOn"] = "FailedBuilds"
    next(resources(document, "Events::Rule"))["DependsOn"] = [role]


def bad_start_at(document: Document) -> None:
    definition = '{"StartAt": "Begin", "States": {"Start": {"Type": "Succeed"}}}'
    role = {"Fn::GetAtt": ["FunctionRole", "Arn"]}
    document["Resources"]["Machine"] = {
        "Type": "AWS::StepFunctions::StateMachine",
        "Properties": {"RoleArn": role, "DefinitionString": definition},
    }


def alarm_period(document: Document) -> None:
    alarms = (item["Properties"] for item in resources(document, "CloudWatch::Alarm"))
    next(item for item in alarms if "Period" in item)["Period"] = 45


def two_endpoints_with_one_name(document: Document) -> None:
    first, second = list(resources(document, "SageMaker::Endpoint"))[:2]
    second["Properties"]["EndpointName"] = first["Properties"]["EndpointName"]


def invalid_dashboard(document: Document) -> None:
    dashboard = properties(document, "CloudWatch::Dashboard")
    dashboard["DashboardBody"] = str(dashboard["DashboardBody"])[:-1]


BOTH = {"Namespace": "AWS/SageMaker", "MetricName": "InvocationsPerInstance", "Statistic": "Sum"}
MODEL, ALARM, PROJECT = "SageMaker::Model", "CloudWatch::Alarm", "CodeBuild::Project"
BUCKET = "S3::Bucket"
MUTATIONS: dict[str, Change] = {
    "bad instance type": lambda d: variant(d).update(InstanceType="ml.g5.tiny"),
    "missing VariantName": lambda d: variant(d).pop("VariantName"),
    "non-integer count": lambda d: variant(d).update(InitialInstanceCount="one"),
    "bad Mode": lambda d: properties(d, MODEL)["PrimaryContainer"].update(Mode="ManyModels"),
    "unknown property": lambda d: endpoint(d).update(InstanceType="ml.g5.xlarge"),
    "missing EndpointConfigName": lambda d: endpoint(d).pop("EndpointConfigName"),
    "bad endpoint name": lambda d: endpoint(d).update(EndpointName="dev_sentence_embedder"),
    "too long endpoint name": lambda d: endpoint(d).update(EndpointName="e" * 80),
    "bad ScalableDimension": lambda d: target(d).update(
        ScalableDimension="sagemaker:variant:InstanceCount"
    ),
    "bad predefined metric": lambda d: policy(d)["PredefinedMetricSpecification"].update(
        PredefinedMetricType="SageMakerInvocations"
    ),
    "missing TargetValue": lambda d: policy(d).pop("TargetValue"),
    "bad alarm operator": lambda d: properties(d, ALARM).update(ComparisonOperator="GreaterThan"),
    "CodeBuild timeout > 2160": lambda d: properties(d, PROJECT).update(TimeoutInMinutes=3000),
    "dangling Ref": lambda d: properties(d, "Lambda::Permission").update(
        FunctionName={"Ref": "NoFunction"}
    ),
    "bad GetAtt": lambda d: properties(d, MODEL)["ExecutionRoleArn"].update(
        {"Fn::GetAtt": [properties(d, MODEL)["ExecutionRoleArn"]["Fn::GetAtt"][0], "RoleArn"]}
    ),
    "circular dependency": circular_dependency,
    "bad bucket name": lambda d: properties(d, BUCKET).update(BucketName="Artifacts_Of_Dev"),
    "bad Step Functions StartAt": bad_start_at,
    "bad Lambda runtime": lambda d: properties(d, "Lambda::Function").update(Runtime="python3.99"),
    "bad SSM type": lambda d: properties(d, "SSM::Parameter").update(Type="Text"),
    "alarm Period=45": alarm_period,
    "misspelt IAM action": lambda d: statement(d).update(Action=["ecr:BatchGetImages"]),
    "invalid EventPattern": lambda d: properties(d, "Events::Rule").update(
        EventPattern={"source": "aws.codebuild"}
    ),
    "MinCapacity > MaxCapacity": lambda d: target(d).update(MinCapacity=9, MaxCapacity=2),
    "ResourceId not naming a variant": lambda d: target(d).update(
        ResourceId=target(d)["ResourceId"].split("/variant/")[0]
    ),
    "policy with both metric kinds": lambda d: policy(d).update(CustomizedMetricSpecification=BOTH),
    "two endpoints with one name": two_endpoints_with_one_name,
    "Model without ExecutionRoleArn": lambda d: properties(d, MODEL).pop("ExecutionRoleArn"),
    "CodeBuild type LINUX_GPU": lambda d: properties(d, PROJECT)["Environment"].update(
        Type="LINUX_GPU"
    ),
    "invalid dashboard JSON": invalid_dashboard,
    "IAM *:*": lambda d: statement(d).update(Action="*", Resource="*"),
    "bucket without encryption": lambda d: properties(d, BUCKET).pop("BucketEncryption"),
    "bucket without public access block": lambda d: properties(d, BUCKET).pop(
        "PublicAccessBlockConfiguration"
    ),
}
