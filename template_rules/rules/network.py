"""Rules of networks: VPC endpoints, and the subnets and groups of models and builds."""

from __future__ import annotations

from collections.abc import Iterator

from onboarding.nearest import did_you_mean
from template_rules.hosting import MODEL
from template_rules.rule import template_rule
from template_rules.templates import Assembly, Problem
from template_rules.values import boolean, is_unknown, known_text

VPC_ENDPOINT = "AWS::EC2::VPCEndpoint"
SERVICES = [
    "s3", "dynamodb", "ecr.api", "ecr.dkr", "kms", "logs", "monitoring", "sagemaker.api",
    "sagemaker.runtime", "sagemaker.featurestore-runtime", "sts", "sns", "sqs", "states",
    "sync-states", "codebuild", "ssm", "ssmmessages", "ec2", "ec2messages", "events",
    "secretsmanager", "lambda", "application-autoscaling", "autoscaling", "cloudformation",
    "elasticfilesystem", "git-codecommit", "codecommit", "elasticloadbalancing", "execute-api",
    "glue", "athena", "kinesis-streams", "kinesis-firehose", "xray",
]  # fmt: skip
WHOLE = {
    MODEL: ("Subnets", "SecurityGroupIds"),
    "AWS::CodeBuild::Project": ("VpcId", "Subnets", "SecurityGroupIds"),
}


@template_rule("E9260", "VPC endpoint of another service or region, or without private DNS")
def vpc_endpoint(assembly: Assembly) -> Iterator[Problem]:
    """A VPC endpoint is of a service of its own region, and reached by that service's name."""
    seen: set[tuple[str, str]] = set()
    for endpoint in assembly.of_type(VPC_ENDPOINT):
        region, given = endpoint.template.stack.region, endpoint.properties
        name = known_text(given.get("ServiceName"))
        if name is not None and name.startswith("com.amazonaws."):
            at, _, service = name.removeprefix("com.amazonaws.").partition(".")
            if region is not None and at != region:
                what, allowed = "the service is of another region", f"com.amazonaws.{region}."
                yield endpoint.problem(
                    "ServiceName", what, "name it here", value=name, allowed=allowed
                )
            elif service not in SERVICES:
                way_out = did_you_mean(service, SERVICES, "name one that AWS has")
                yield endpoint.problem(
                    "ServiceName", "no such service has VPC endpoints", way_out, value=name
                )
            pair = (name, str(given.get("VpcId")))
            if pair in seen:
                what = "the VPC has two endpoints of the service"
                yield endpoint.problem("ServiceName", what, "remove one", value=name)
            seen.add(pair)
        interface = given.get("VpcEndpointType") == "Interface"
        if interface and boolean(given.get("PrivateDnsEnabled", False)) is False:
            what = "clients do not find the endpoint by the service's name"
            yield endpoint.problem("PrivateDnsEnabled", what, "write true", value="false")
        for key in ("SubnetIds", "SecurityGroupIds") if interface else ("RouteTableIds",):
            if not given.get(key):
                yield endpoint.problem(key, f"the endpoint has no {key}", "name some")


@template_rule("E9261", "VpcConfig without subnets or security groups")
def vpc_config(assembly: Assembly) -> Iterator[Problem]:
    """A model or a build in a VPC names subnets and security groups."""
    for resource_type, keys in WHOLE.items():
        for resource in assembly.of_type(resource_type):
            network = resource.properties.get("VpcConfig")
            if network is None or is_unknown(network):
                continue
            for key in keys:
                if not isinstance(network, dict) or not network.get(key):
                    what = f"the VpcConfig has no {key}"
                    yield resource.problem(f"VpcConfig.{key}", what, "name them")
