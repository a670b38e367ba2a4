"""IAM policy statements, each no wider than its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from stacks import arns

Statement = dict[str, Any]


def image_pull(environment: EnvironmentSpec, image: str) -> tuple[Statement, ...]:
    """Pull one image; the registry's log-in knows no resource."""
    actions = ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    return (
        _allow("PullImage", actions, [arns.repository(environment, image)]),
        _allow("LogInToRegistry", ["ecr:GetAuthorizationToken"], ["*"]),
    )


def object_reads(environment: EnvironmentSpec, paths: Sequence[str]) -> tuple[Statement, ...]:
    """Read these objects; listing the bucket is what makes a missing object a 404 instead of a 403."""
    objects = [arns.bucket_object(environment, path) for path in paths]
    return (
        _allow("ReadObjects", ["s3:GetObject", "s3:GetObjectVersion"], objects),
        _allow("ListBucket", ["s3:GetBucketLocation", "s3:ListBucket"], [arns.bucket(environment)]),
    )


def object_writes(environment: EnvironmentSpec, paths: Sequence[str]) -> tuple[Statement, ...]:
    """Write these objects."""
    objects = [arns.bucket_object(environment, path) for path in paths]
    return (_allow("WriteObjects", ["s3:AbortMultipartUpload", "s3:PutObject"], objects),)


def key_use(environment: EnvironmentSpec, actions: Sequence[str]) -> tuple[Statement, ...]:
    """Use the bucket's key, through S3 only: the environment's own key, or the one behind the foundation's alias."""
    through_s3 = {"StringEquals": {"kms:ViaService": f"s3.{environment.region}.amazonaws.com"}}
    if environment.kms_key_arn is not None:
        return (_allow("UseKey", actions, [environment.kms_key_arn], through_s3),)
    # The key's id is known only after its creation; the alias pins it without an export that would tie the stacks together.
    alias = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": arns.key_alias(environment)}}
    return (_allow("UseKey", actions, [arns.arn(environment, "kms", "key/*")], {**through_s3, **alias}),)


def log_writes(environment: EnvironmentSpec, group: str) -> tuple[Statement, ...]:
    """Write one log group."""
    resource = arns.log_group(environment, group)
    actions = ["logs:CreateLogGroup", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
    return (_allow("WriteLogs", actions, [resource, f"{resource}:log-stream:*"]),)


def host_metrics() -> tuple[Statement, ...]:
    """Publish the host's metrics; the action knows no resource, so the namespace narrows it."""
    namespace = {"StringLike": {"cloudwatch:namespace": "/aws/sagemaker/*"}}
    return (_allow("PublishHostMetrics", ["cloudwatch:PutMetricData"], ["*"], namespace),)


def network_interfaces(environment: EnvironmentSpec) -> tuple[Statement, ...]:
    """Attach to the environment's VPC, if it names one; EC2's describe actions know no resource."""
    if environment.network is None:
        return ()
    describe = ["DhcpOptions", "NetworkInterfaces", "SecurityGroups", "Subnets", "Vpcs"]
    attach = ["Create", "Delete"]
    return (
        _allow("DescribeNetwork", [f"ec2:Describe{noun}" for noun in describe], ["*"]),
        _allow(
            "AttachToNetwork",
            [f"ec2:{verb}NetworkInterface{suffix}" for verb in attach for suffix in ("", "Permission")],
            _network_arns(environment, environment.network),
        ),
    )


def _network_arns(environment: EnvironmentSpec, network: NetworkSpec) -> list[str]:
    subnets = [arns.arn(environment, "ec2", f"subnet/{subnet}") for subnet in network.subnet_ids]
    groups = [arns.arn(environment, "ec2", f"security-group/{group}") for group in network.security_group_ids]
    return [arns.arn(environment, "ec2", "network-interface/*"), *subnets, *groups]


def _allow(
    sid: str, actions: Sequence[str], resources: Sequence[str], condition: dict[str, dict[str, str]] | None = None
) -> Statement:
    statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    return statement if condition is None else {**statement, "Condition": condition}
