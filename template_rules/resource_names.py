"""Names and ARNs of CloudFormation resource types.

Source: CloudFormation template reference, "Return values" of each type.
"""

from __future__ import annotations

_HERE = "{region}:{account}"
_TYPES: dict[str, tuple[str | None, str | None, bool]] = {
    "AWS::CloudWatch::Alarm": ("AlarmName", f"cloudwatch:{_HERE}:alarm:{{name}}", False),
    "AWS::CloudWatch::CompositeAlarm": ("AlarmName", f"cloudwatch:{_HERE}:alarm:{{name}}", False),
    "AWS::CodeBuild::Project": ("Name", f"codebuild:{_HERE}:project/{{name}}", False),
    "AWS::ECR::Repository": ("RepositoryName", f"ecr:{_HERE}:repository/{{name}}", False),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName", "iam::{account}:policy/{name}", True),
    "AWS::IAM::Role": ("RoleName", "iam::{account}:role/{name}", False),
    "AWS::KMS::Alias": ("AliasName", f"kms:{_HERE}:{{name}}", False),
    "AWS::KMS::Key": (None, f"kms:{_HERE}:key/{{name}}", False),
    "AWS::Lambda::Function": ("FunctionName", f"lambda:{_HERE}:function:{{name}}", False),
    "AWS::Logs::LogGroup": ("LogGroupName", f"logs:{_HERE}:log-group:{{name}}:*", False),
    "AWS::S3::Bucket": ("BucketName", "s3:::{name}", False),
    "AWS::SNS::Topic": ("TopicName", f"sns:{_HERE}:{{name}}", True),
    "AWS::SQS::Queue": ("QueueName", f"sqs:{_HERE}:{{name}}", False),
    "AWS::StepFunctions::StateMachine": (
        "StateMachineName",
        f"states:{_HERE}:stateMachine:{{name}}",
        True,
    ),
    **{
        f"AWS::SageMaker::{noun}": (f"{noun}Name", f"sagemaker:{_HERE}:{kind}/{{name}}", True)
        for noun, kind in (
            ("Endpoint", "endpoint"),
            ("EndpointConfig", "endpoint-config"),
            ("InferenceComponent", "inference-component"),
            ("Model", "model"),
        )
    },
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
