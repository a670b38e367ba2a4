"""Each rule holds on a sound template, and refuses a change of it."""

from __future__ import annotations

import copy

import pytest

from template_rules.findings import check_files, own_findings, rule_descriptions
from template_rules.intrinsics import Stack
from template_rules.read import TemplateFiles
from template_rules.templates import Template

pytestmark = pytest.mark.unit

HERE = "111122223333.dkr.ecr.us-east-1.amazonaws.com"
DIMENSIONS = [
    {"Name": "EndpointName", "Value": "embedder"},
    {"Name": "VariantName", "Value": "AllTraffic"},
]
ALARM = {
    "Namespace": "AWS/SageMaker",
    "Dimensions": DIMENSIONS,
    "Period": 60,
    "EvaluationPeriods": 3,
    "ComparisonOperator": "GreaterThanThreshold",
    "TreatMissingData": "notBreaching",
}
SCALED = {
    "ServiceNamespace": "sagemaker",
    "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    "ResourceId": "endpoint/embedder/variant/AllTraffic",
}
KEEP = {"DeletionPolicy": "RetainExceptOnCreate", "UpdateReplacePolicy": "Retain"}
DENY_PLAIN = {
    "Effect": "Deny",
    "Principal": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}


def allow(action, resource, **more):
    return {"Effect": "Allow", "Action": action, "Resource": resource, **more}


def resource(kind, properties, **more):
    return {"Type": f"AWS::{kind}", "Properties": properties, **more}


SOUND = {
    "Resources": {
        "Role": resource(
            "IAM::Role",
            {
                "AssumeRolePolicyDocument": {
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Service": "sagemaker.amazonaws.com"},
                            "Action": "sts:AssumeRole",
                            "Condition": {"StringEquals": {"aws:SourceAccount": "111122223333"}},
                        }
                    ]
                },
                "Policies": [
                    {
                        "PolicyName": "exact",
                        "PolicyDocument": {
                            "Statement": [allow("s3:GetObject", "arn:aws:s3:::engines/a")]
                        },
                    }
                ],
            },
        ),
        "Model": resource(
            "SageMaker::Model",
            {
                "ExecutionRoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
                "EnableNetworkIsolation": True,
                "PrimaryContainer": {
                    "Image": f"{HERE}/triton:1",
                    "Mode": "SingleModel",
                    "ModelDataUrl": "s3://engines/a/model.tar.gz",
                    "Environment": {"A": "b"},
                },
                "VpcConfig": {"Subnets": ["subnet-1"], "SecurityGroupIds": ["sg-1"]},
            },
        ),
        "Config": resource(
            "SageMaker::EndpointConfig",
            {
                "ProductionVariants": [
                    {
                        "VariantName": "AllTraffic",
                        "ModelName": {"Fn::GetAtt": ["Model", "ModelName"]},
                        "InstanceType": "ml.g5.xlarge",
                        "InitialInstanceCount": 2,
                        "InferenceAmiVersion": "al2023-ami-sagemaker-inference-gpu-4-1",
                    }
                ]
            },
        ),
        "Endpoint": resource(
            "SageMaker::Endpoint",
            {
                "EndpointName": "embedder",
                "EndpointConfigName": {"Fn::GetAtt": ["Config", "EndpointConfigName"]},
                "RetainAllVariantProperties": True,
                "DeploymentConfig": {
                    "BlueGreenUpdatePolicy": {
                        "TrafficRoutingConfiguration": {
                            "Type": "CANARY",
                            "CanarySize": {"Type": "CAPACITY_PERCENT", "Value": 50},
                            "WaitIntervalInSeconds": 300,
                        },
                        "TerminationWaitInSeconds": 300,
                        "MaximumExecutionTimeoutInSeconds": 3600,
                    },
                    "AutoRollbackConfiguration": {"Alarms": [{"AlarmName": {"Ref": "Latency"}}]},
                },
            },
        ),
        "Latency": resource(
            "CloudWatch::Alarm",
            {
                **ALARM,
                "AlarmName": "embedder-latency",
                "MetricName": "ModelLatency",
                "ExtendedStatistic": "p99",
                "Threshold": 50000,
            },
        ),
        "Target": resource(
            "ApplicationAutoScaling::ScalableTarget",
            {
                **SCALED,
                "MinCapacity": 1,
                "MaxCapacity": 4,
                "ScheduledActions": [
                    {
                        "ScheduledActionName": "morning",
                        "Schedule": "cron(0 7 ? * MON-FRI *)",
                        "Timezone": "Europe/Berlin",
                        "ScalableTargetAction": {"MinCapacity": 2},
                    }
                ],
            },
            DependsOn="Endpoint",
        ),
        "Policy": resource(
            "ApplicationAutoScaling::ScalingPolicy",
            {
                **SCALED,
                "PolicyType": "TargetTrackingScaling",
                "TargetTrackingScalingPolicyConfiguration": {
                    "TargetValue": 70,
                    "CustomizedMetricSpecification": {
                        "Namespace": "/aws/sagemaker/Endpoints",
                        "MetricName": "GPUUtilization",
                        "Dimensions": DIMENSIONS,
                        "Statistic": "Average",
                    },
                },
            },
            DependsOn="Target",
        ),
        "Board": resource(
            "CloudWatch::Dashboard",
            {"DashboardBody": '{"widgets": [{"type": "text", "x": 0, "width": 6}]}'},
        ),
        "Key": resource("KMS::Key", {"EnableKeyRotation": True, "KeyPolicy": {}}, **KEEP),
        "Bucket": resource(
            "S3::Bucket",
            {
                "BucketName": "engines",
                "BucketEncryption": {
                    "ServerSideEncryptionConfiguration": [
                        {
                            "ServerSideEncryptionByDefault": {
                                "SSEAlgorithm": "aws:kms",
                                "KMSMasterKeyID": {"Ref": "Key"},
                            }
                        }
                    ]
                },
                "VersioningConfiguration": {"Status": "Enabled"},
                "LifecycleConfiguration": {
                    "Rules": [
                        {"Id": "old", "Status": "Enabled", "Prefix": "b/", "ExpirationInDays": 9}
                    ]
                },
                "PublicAccessBlockConfiguration": {
                    "BlockPublicAcls": True,
                    "BlockPublicPolicy": True,
                    "IgnorePublicAcls": True,
                    "RestrictPublicBuckets": True,
                },
            },
            **KEEP,
        ),
        "BucketPolicy": resource(
            "S3::BucketPolicy",
            {
                "Bucket": {"Ref": "Bucket"},
                "PolicyDocument": {
                    "Statement": [{**DENY_PLAIN, "Action": "s3:*", "Resource": "*"}]
                },
            },
        ),
        "Images": resource(
            "ECR::Repository",
            {"ImageTagMutability": "IMMUTABLE", "ImageScanningConfiguration": {"ScanOnPush": True}},
            **KEEP,
        ),
        "Logs": resource("Logs::LogGroup", {"RetentionInDays": 7}),
        "Project": resource(
            "CodeBuild::Project",
            {
                "Environment": {
                    "Type": "LINUX_CONTAINER",
                    "ComputeType": "BUILD_GENERAL1_SMALL",
                    "Image": f"{HERE}/builder:1",
                    "ImagePullCredentialsType": "SERVICE_ROLE",
                },
                "Source": {
                    "Type": "NO_SOURCE",
                    "BuildSpec": "version: 0.2\nphases: {build: {commands: [make]}}",
                },
            },
        ),
        "VpcEndpoint": resource(
            "EC2::VPCEndpoint",
            {
                "VpcEndpointType": "Interface",
                "ServiceName": "com.amazonaws.us-east-1.kms",
                "SubnetIds": ["subnet-1"],
                "SecurityGroupIds": ["sg-1"],
                "PrivateDnsEnabled": True,
            },
        ),
        "Machine": resource(
            "StepFunctions::StateMachine",
            {
                "DefinitionString": '{"StartAt": "Tell", "States": {"Tell": {"Type": "Task",'
                ' "Resource": "arn:aws:states:::aws-sdk:sns:publish",'
                ' "Parameters": {"Message": "a"}, "End": true}}}'
            },
        ),
        "Failed": resource("Events::Rule", {"EventPattern": {"source": ["aws.codebuild"]}}),
    }
}
ROUTING = "Endpoint.DeploymentConfig.BlueGreenUpdatePolicy.TrafficRoutingConfiguration"
TRACKING = "Policy.TargetTrackingScalingPolicyConfiguration"
CONTAINER, VARIANT = "Model.PrimaryContainer", "Config.ProductionVariants.0"
STATEMENT = "Role.Policies.0.PolicyDocument.Statement.0"
TRUST = "Role.AssumeRolePolicyDocument.Statement.0"
REFUSED = [
    ("E9100", "Model.ExecutionRoleArn", None),
    ("E9101", CONTAINER, None),
    ("E9101", f"{CONTAINER}.Image", None),
    ("E9103", f"{CONTAINER}.Mode", "MultiModel"),
    ("E9105", f"{CONTAINER}.ModelDataUrl", "s3://engines/a/model.zip"),
    ("E9106", CONTAINER, {"Image": f"{HERE}/a:1", "Mode": "MultiModel", "ModelDataUrl": "s3://e/"}),
    ("E9108", "Model.EnableNetworkIsolation", False),
    ("E9109", f"{CONTAINER}.Image", f"{HERE}/triton:latest"),
    ("E9109", f"{CONTAINER}.Image", f"{HERE.replace('us-east-1', 'eu-west-1')}/triton:1"),
    ("E9110", "Model.ModelName", "embedder"),
    ("E9111", f"{CONTAINER}.Environment", {"1a": "b"}),
    ("E9111", f"{CONTAINER}.Environment", {"A": "x" * 1025}),
    ("E9121", f"{VARIANT}.InstanceType", None),
    ("E9122", f"{VARIANT}.InitialVariantWeight", 0),
    ("E9125", f"{VARIANT}.InstancePools", [{"Priority": 1}, {"Priority": 1}]),
    ("E9126", f"{VARIANT}.InstanceType", "ml.c7i.xlarge"),
    ("E9129", "Config.DataCaptureConfig", {"EnableCapture": True}),
    ("E9130", f"{VARIANT}.ModelName", {"Ref": "Model"}),
    ("E9140", "Endpoint.EndpointConfigName", {"Ref": "Config"}),
    ("E9141", f"{ROUTING}.CanarySize.Value", 60),
    ("E9141", f"{ROUTING}.Type", "LINEAR"),
    ("E9145", "Endpoint.DeploymentConfig.RollingUpdatePolicy", {"WaitIntervalInSeconds": 300}),
    ("E9147", "Endpoint.DeploymentConfig.AutoRollbackConfiguration.Alarms", []),
    ("E9151", "Endpoint.ExcludeRetainedVariantProperties", [{"VariantPropertyType": "Count"}]),
    ("E9152", f"{ROUTING}.WaitIntervalInSeconds", 0),
    ("E9153", "Endpoint.RetainAllVariantProperties", None),
    ("E9160", "Target.MinCapacity", 5),
    ("E9161", "Target.ResourceId", "endpoint/embedder"),
    ("E9161", "Endpoint.EndpointName", "another"),
    ("E9163", "Policy.ResourceId", "endpoint/embedder/variant/Other"),
    ("E9164", f"{TRACKING}.PredefinedMetricSpecification", {"PredefinedMetricType": "A"}),
    ("E9167", f"{TRACKING}.TargetValue", 0.7),
    ("E9168", f"{TRACKING}.CustomizedMetricSpecification.Statistic", "Sum"),
    ("E9171", f"{VARIANT}.InitialInstanceCount", 5),
    ("E9172", "Target.ScheduledActions.0.Timezone", "CEST"),
    ("E9172", "Target.ScheduledActions.0.Schedule", "every morning"),
    ("E9173", "Target.DependsOn", None),
    ("E9180", "Latency.MetricName", "ModelLatencies"),
    ("E9181", "Latency.ExtendedStatistic", "p101"),
    ("E9182", "Latency.Dimensions", DIMENSIONS[:1]),
    ("E9184", "Latency.MetricName", "ApproximateBacklogSize"),
    ("E9190", "Latency.Period", 45),
    ("E9194", "Latency.Threshold", 50),
    ("E9195", "Latency.ExtendedStatistic", "Sum"),
    ("E9196", "Latency.ComparisonOperator", "LessThanThreshold"),
    ("E9197", "Latency.TreatMissingData", "breaching"),
    ("E9198", "Latency.Metrics", [{"Id": "a", "Expression": "b + 1"}]),
    ("E9199", "Latency.EvaluationPeriods", None),
    ("E9210", "Board.DashboardBody", '{"widgets": [{"type": "graph"}]}'),
    ("E9216", "Board.DashboardBody", '{"widgets": [], "variables": [{"pattern": "A"}]}'),
    ("E9220", f"{STATEMENT}.Action", "s3:*"),
    ("E9220", f"{STATEMENT}.Action", "*"),
    ("E9222", f"{STATEMENT}.Resource", "*"),
    ("E9223", STATEMENT, allow("kms:Decrypt", "arn:aws:kms:us-east-1:111122223333:key/*")),
    ("E9224", STATEMENT, allow("iam:PassRole", "arn:aws:iam::111122223333:role/a")),
    ("E9225", "Role.ManagedPolicyArns", ["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"]),
    ("E9226", f"{TRUST}.Condition", None),
    (
        "E9227",
        "Images.RepositoryPolicyText",
        {"Statement": [{"Effect": "Allow", "Principal": "*"}]},
    ),
    ("E9250", "Project.Environment.Type", "LINUX_GPU"),
    ("E9254", "Project.Environment.PrivilegedMode", True),
    ("E9255", "Project.Environment.ImagePullCredentialsType", "CODEBUILD"),
    ("E9256", "Project.Source.BuildSpec", "version: 0.2\nphases: {bild: {}}"),
    ("E9260", "VpcEndpoint.ServiceName", "com.amazonaws.us-east-1.kmz"),
    ("E9261", "Model.VpcConfig.SecurityGroupIds", None),
    ("E9270", "Failed.EventPattern", {"source": "aws.codebuild"}),
    ("E9400", "Bucket.DeletionPolicy", "Delete"),
    ("E9401", "Key.EnableKeyRotation", False),
    ("E9401", "Bucket.BucketEncryption", None),
    ("E9402", "Bucket.VersioningConfiguration", None),
    ("E9402", "Bucket.PublicAccessBlockConfiguration", None),
    ("E9403", "BucketPolicy.PolicyDocument", {"Statement": []}),
    ("E9404", "Images.ImageTagMutability", "MUTABLE"),
    ("E9405", "Logs.RetentionInDays", None),
    ("E9406", "Bucket.LifecycleConfiguration.Rules.0.Prefix", "a/"),
    ("E9407", f"{CONTAINER}.Environment", {"API_KEY": "0123456789"}),
]
MACHINES = [
    ("E9280", "sns:publish", "sns:publsh"),
    ("E9280", "Message", "Massage"),
    ("E9281", '"Resource": "arn:aws:states:::aws-sdk:sns:publish"', '"Resource": "a.sync"'),
]
ELSEWHERE = {"E9214", *(f"E91{number}" for number in range(31, 39))}
"""Rules of other tests: graphs of real dashboards, and inference components."""


def change(document, path, value):
    """Put a value at a path of a resource; None removes what is there."""
    name, *keys = path.split(".")
    holder = document["Resources"][name]
    if keys[0] not in ("DependsOn", "DeletionPolicy"):
        holder = holder["Properties"]
    for key in keys[:-1]:
        holder = holder[int(key)] if isinstance(holder, list) else holder[key]
    last = int(keys[-1]) if isinstance(holder, list) else keys[-1]
    if value is None:
        del holder[last]
    else:
        holder[last] = value
    return document


def rules(document):
    stack = Stack(name="a", account="111122223333", region="us-east-1")
    return {finding.rule for finding in own_findings(Template("a.json", document, stack=stack))}


def test_sound_template_has_no_finding():
    assert rules(SOUND) == set()


@pytest.mark.parametrize(("rule", "path", "value"), REFUSED)
def test_refuses_change(rule, path, value):
    assert rule in rules(change(copy.deepcopy(SOUND), path, value))


@pytest.mark.parametrize(("rule", "old", "new"), MACHINES)
def test_refuses_state(rule, old, new):
    document = copy.deepcopy(SOUND)
    properties = document["Resources"]["Machine"]["Properties"]
    assert old in properties["DefinitionString"]
    properties["DefinitionString"] = properties["DefinitionString"].replace(old, new)
    properties["StateMachineType"] = "EXPRESS"
    assert rule in rules(document)


def test_refuses_an_action_that_iam_does_not_have():
    document = change(copy.deepcopy(SOUND), f"{STATEMENT}.Action", "ecr:BatchGetImages")
    stack = Stack(name="a", account="111122223333", region="us-east-1")
    found = check_files(TemplateFiles(templates=[Template("a.json", document, stack=stack)]))
    assert [finding.severity for finding in found if finding.rule == "W3037"] == ["error"]


def test_every_rule_is_tested():
    tested = {rule for rule, _, _ in (*REFUSED, *MACHINES)} | ELSEWHERE
    assert {name for name in rule_descriptions() if name < "E95"} == tested
