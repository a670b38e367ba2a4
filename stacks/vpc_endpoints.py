"""The VPC endpoints that isolated subnets need, as CloudFormation properties."""

from __future__ import annotations

from typing import Any

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from onboarding.platform import aws_partition
from stacks.access import arns
from stacks.access.policies import allow, policy_document, source_bucket_arns
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
    secrets = {"SecretsManager": "secretsmanager"} if environment.source_secrets.secrets else {}
    properties = {"S3Endpoint": _s3(environment, network)} | {
        f"{name}Endpoint": _interface(environment, network, service)
        for name, service in (INTERFACES | secrets).items()
    }
    return {
        logical_id: {"Type": "AWS::EC2::VPCEndpoint", "Properties": endpoint}
        for logical_id, endpoint in properties.items()
    }


def _s3(environment: EnvironmentSpec, network: NetworkSpec) -> dict[str, Any]:
    """The gateway to S3: what runs in these subnets carries no data to a stranger's bucket.

    Every layer of every image comes from ECR's own bucket, by a signed address. The first process
    of a build's container fetches its agent from CodeBuild's own bucket, by way of the build's
    network: its address stands in a build's variables (CODEBUILD_ACTION_RUNNER_URL) and process
    list (aws-codebuild-docker-images, issue 254); no page of AWS names it.
    """
    aws, region = f"arn:{aws_partition(environment.region)}:s3:::", environment.region
    own = [arns.bucket(environment), arns.bucket_object(environment, "*")]
    sources = [
        arn
        for bucket in environment.source_buckets
        for arn in source_bucket_arns(environment, bucket)
    ]
    layers = [f"{aws}prod-{region}-starport-layer-bucket/*"]
    agent = [f"{aws}codefactory-{region}-prod-default-build-agent-executor/*"]
    account = _of_account(environment)
    objects = "s3:AbortMultipartUpload GetBucketLocation GetObject GetObjectVersion ListBucket"
    statements = [
        allow("Artifacts", f"{objects} PutObject", own, account),
        allow("ImageLayers", "s3:GetObject", layers),
        allow("BuildAgent", "s3:GetObject", agent),
        *([allow("Sources", "s3:GetObject ListBucket", sources, account)] if sources else []),
    ]
    return {
        "VpcEndpointType": "Gateway",
        "VpcId": network.vpc_id,
        "ServiceName": f"com.amazonaws.{region}.s3",
        "RouteTableIds": list(network.route_table_ids),
        "PolicyDocument": policy_document([{**item, "Principal": "*"} for item in statements]),
    }


def _interface(environment: EnvironmentSpec, network: NetworkSpec, service: str) -> dict[str, Any]:
    anything = {"Principal": "*", "Action": "*", "Resource": "*"}
    statement = {
        "Sid": "OfThisAccount",
        "Effect": "Allow",
        **anything,
        "Condition": _of_account(environment),
    }
    return {
        "VpcEndpointType": "Interface",
        "VpcId": network.vpc_id,
        "ServiceName": f"com.amazonaws.{environment.region}.{service}",
        "SubnetIds": list(network.subnet_ids),
        "SecurityGroupIds": list(network.security_group_ids),
        "PrivateDnsEnabled": True,
        "PolicyDocument": policy_document([statement]),
    }


def _of_account(environment: EnvironmentSpec) -> dict[str, Any]:
    return {"StringEquals": {"aws:PrincipalAccount": environment.account}}
