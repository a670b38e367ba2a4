"""Names and ARNs of CloudFormation resource types.

Source: CloudFormation template reference, "Return values" of each type.
"""

from __future__ import annotations

_TYPES: dict[str, tuple[str | None, str | None, bool]] = {
    "AWS::CloudWatch::Alarm": ("AlarmName", "cloudwatch:{region}:{account}:alarm:{name}", False),
    "AWS::CloudWatch::CompositeAlarm": (
        "AlarmName",
        "cloudwatch:{region}:{account}:alarm:{name}",
        False,
    ),
    "AWS::CloudWatch::Dashboard": ("DashboardName", None, False),
    "AWS::CodeBuild::Project": ("Name", "codebuild:{region}:{account}:project/{name}", False),
    "AWS::ECR::Repository": ("RepositoryName", "ecr:{region}:{account}:repository/{name}", False),
    "AWS::Events::Rule": ("Name", "events:{region}:{account}:rule/{name}", False),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName", "iam::{account}:policy/{name}", True),
    "AWS::IAM::Role": ("RoleName", "iam::{account}:role/{name}", False),
    "AWS::KMS::Alias": ("AliasName", "kms:{region}:{account}:{name}", False),
    "AWS::KMS::Key": (None, "kms:{region}:{account}:key/{name}", False),
    "AWS::Lambda::Function": ("FunctionName", "lambda:{region}:{account}:function:{name}", False),
    "AWS::Logs::LogGroup": ("LogGroupName", "logs:{region}:{account}:log-group:{name}:*", False),
    "AWS::S3::Bucket": ("BucketName", "s3:::{name}", False),
    "AWS::SNS::Topic": ("TopicName", "sns:{region}:{account}:{name}", True),
    "AWS::SQS::Queue": ("QueueName", "sqs:{region}:{account}:{name}", False),
    "AWS::SSM::Parameter": ("Name", None, False),
    "AWS::SageMaker::Endpoint": (
        "EndpointName",
        "sagemaker:{region}:{account}:endpoint/{name}",
        True,
    ),
    "AWS::SageMaker::EndpointConfig": (
        "EndpointConfigName",
        "sagemaker:{region}:{account}:endpoint-config/{name}",
        True,
    ),
    "AWS::SageMaker::InferenceComponent": (
        "InferenceComponentName",
        "sagemaker:{region}:{account}:inference-component/{name}",
        True,
    ),
    "AWS::SageMaker::Model": ("ModelName", "sagemaker:{region}:{account}:model/{name}", True),
    "AWS::StepFunctions::StateMachine": (
        "StateMachineName",
        "states:{region}:{account}:stateMachine:{name}",
        True,
    ),
}
"""Type -> (name property, ARN after the partition, whether Ref is the ARN)."""


def name_property(resource_type: str) -> str | None:
    """Return the property that names a resource of a type; None where AWS names it."""
    return _TYPES.get(resource_type, (None, None, False))[0]


def ref_is_arn(resource_type: str) -> bool:
    """Return True for types whose Ref is an ARN."""
    return _TYPES.get(resource_type, (None, None, False))[2]


def arn(resource_type: str, name: str, *, region: str, account: str, partition: str) -> str | None:
    """Return the ARN of a resource; None for a type without one here."""
    pattern = _TYPES.get(resource_type, (None, None, False))[1]
    if pattern is None:
        return None
    return f"arn:{partition}:" + pattern.format(region=region, account=account, name=name)
