"""The VPC endpoints that isolated subnets need, as CloudFormation properties."""

from __future__ import annotations

from typing import Any

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from onboarding.platform import aws_partition
from stacks.access import arns
from stacks.template import Resources

INTERFACES = {
    "EcrApi": "ecr.api",
    "EcrDkr": "ecr.dkr",
    "Kms": "kms",
    "Logs": "logs",
    "Monitoring": "monitoring",
    "SagemakerApi": "sagemaker.api",
    "SagemakerRuntime": "sagemaker.runtime",
    "Sts": "sts",
}
"""Services, by construct id."""


def vpc_endpoints(environment: EnvironmentSpec) -> Resources:
    """Return every VPC endpoint; none unless the environment's network wants them."""
    network = environment.network
    if network is None or not network.vpc_endpoints:
        return {}
    properties = {"S3Endpoint": _s3(environment, network)} | {
        f"{name}Endpoint": _interface(environment, network, service)
        for name, service in INTERFACES.items()
    }
    return {
        logical_id: {"Type": "AWS::EC2::VPCEndpoint", "Properties": endpoint}
        for logical_id, endpoint in properties.items()
    }


def _s3(environment: EnvironmentSpec, network: NetworkSpec) -> dict[str, Any]:
    return {
        "VpcEndpointType": "Gateway",
        "VpcId": network.vpc_id,
        "ServiceName": _service_name(environment, "s3"),
        "RouteTableIds": list(network.route_table_ids),
        "PolicyDocument": {
            "Version": "2012-10-17",
            "Statement": [
                _artifacts(environment),
                _image_layers(environment),
                _build_agent(environment),
            ],
        },
    }


def _interface(environment: EnvironmentSpec, network: NetworkSpec, service: str) -> dict[str, Any]:
    own = {
        "Sid": "OfThisAccount",
        "Effect": "Allow",
        "Principal": "*",
        "Action": "*",
        "Resource": "*",
    }
    condition = {"StringEquals": {"aws:PrincipalAccount": environment.account}}
    return {
        "VpcEndpointType": "Interface",
        "VpcId": network.vpc_id,
        "ServiceName": _service_name(environment, service),
        "SubnetIds": list(network.subnet_ids),
        "SecurityGroupIds": list(network.security_group_ids),
        "PrivateDnsEnabled": True,
        "PolicyDocument": {"Version": "2012-10-17", "Statement": [{**own, "Condition": condition}]},
    }


def _artifacts(environment: EnvironmentSpec) -> dict[str, Any]:
    """The artifact bucket and no other.

    What runs in these subnets cannot carry data to a stranger's bucket.
    """
    actions = [
        "AbortMultipartUpload",
        "GetBucketLocation",
        "GetObject",
        "GetObjectVersion",
        "ListBucket",
        "PutObject",
    ]
    return {
        "Sid": "Artifacts",
        "Effect": "Allow",
        "Principal": "*",
        "Action": [f"s3:{action}" for action in actions],
        "Resource": [arns.bucket(environment), arns.bucket_object(environment, "*")],
        "Condition": {"StringEquals": {"aws:PrincipalAccount": environment.account}},
    }


def _image_layers(environment: EnvironmentSpec) -> dict[str, Any]:
    """ECR's own bucket, from which every layer of every image comes by a signed address."""
    partition, region = aws_partition(environment.region), environment.region
    bucket = f"arn:{partition}:s3:::prod-{region}-starport-layer-bucket"
    return {
        "Sid": "ImageLayers",
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject"],
        "Resource": [f"{bucket}/*"],
    }


def _build_agent(environment: EnvironmentSpec) -> dict[str, Any]:
    """CodeBuild's own bucket.

    The first process of a build's container fetches its agent there, by way of the build's network.
    Its address stands in a build's variables (CODEBUILD_ACTION_RUNNER_URL) and process list
    (aws-codebuild-docker-images, issue 254); no page of AWS names it.
    """
    partition = aws_partition(environment.region)
    name = f"codefactory-{environment.region}-prod-default-build-agent-executor"
    bucket = f"arn:{partition}:s3:::{name}"
    return {
        "Sid": "BuildAgent",
        "Effect": "Allow",
        "Principal": "*",
        "Action": ["s3:GetObject"],
        "Resource": [f"{bucket}/*"],
    }


def _service_name(environment: EnvironmentSpec, service: str) -> str:
    return f"com.amazonaws.{environment.region}.{service}"
