"""Writes what the template rules know of AWS: `python -m roundhouse.templates.data --write`.

The sources are cfn-lint's copies of AWS's own schemas, prices and IAM lists, and botocore's models.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[2] / "template_rules" / "data"
REGION = "us-east-1"
TYPES = """
AWS::SageMaker::Model AWS::SageMaker::EndpointConfig AWS::SageMaker::Endpoint AWS::SageMaker::InferenceComponent
AWS::ApplicationAutoScaling::ScalableTarget AWS::ApplicationAutoScaling::ScalingPolicy
AWS::CloudWatch::Alarm AWS::CloudWatch::CompositeAlarm AWS::CloudWatch::Dashboard AWS::Logs::LogGroup
AWS::S3::Bucket AWS::S3::BucketPolicy AWS::KMS::Key AWS::KMS::Alias AWS::ECR::Repository
AWS::IAM::Role AWS::IAM::Policy AWS::IAM::ManagedPolicy AWS::IAM::InstanceProfile
AWS::CodeBuild::Project AWS::CodeBuild::Fleet AWS::StepFunctions::StateMachine AWS::Events::Rule
AWS::SNS::Topic AWS::SNS::Subscription AWS::SNS::TopicPolicy AWS::SQS::Queue AWS::SQS::QueuePolicy
AWS::Lambda::Function AWS::Lambda::Permission AWS::SSM::Parameter
AWS::EC2::VPC AWS::EC2::Subnet AWS::EC2::SecurityGroup AWS::EC2::VPCEndpoint AWS::EC2::RouteTable AWS::EC2::Route
AWS::EC2::SubnetRouteTableAssociation AWS::EC2::VPCGatewayAttachment AWS::EC2::InternetGateway AWS::EC2::NatGateway AWS::EC2::EIP
"""
"""Types whose properties are known."""
SERVICES = """
application-autoscaling athena autoscaling cloudformation cloudwatch codebuild codecommit codepipeline dynamodb ec2 ecr
ecr-public ecs elasticfilesystem elasticloadbalancing events firehose fsx glue iam kinesis kms lambda logs s3 sagemaker scheduler
secretsmanager servicequotas sns sqs ssm states sts tag xray
"""
"""Services whose IAM actions are known by name."""
KEPT = """
type properties required additionalProperties patternProperties items enum pattern minLength maxLength minimum maximum minItems
maxItems uniqueItems dependentExcluded dependentRequired requiredXor requiredOr oneOf anyOf $ref
"""
"""Keywords of a schema that the rules read."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when `--check` finds a file that the libraries here would write otherwise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--write", action="store_true", help="write the files; otherwise they are only compared"
    )
    write = parser.parse_args(arguments).write
    differing = []
    for name, document in documents().items():
        path, text = FOLDER / name, one_line_each(document)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            differing.append(name)
            if write:
                path.write_text(text, encoding="utf-8")
    if differing and not write:
        print(
            f"{', '.join(differing)}: not what the libraries here say; `python -m roundhouse.templates.data --write`.",
            file=sys.stderr,
        )
    return 1 if differing and not write else 0


def documents() -> dict[str, Mapping[str, Any]]:
    """Every data file, by name."""
    return {
        "attributes.json": attributes(),
        "property_schemas.json": {name: property_schema(name) for name in TYPES.split()},
        "iam_actions.json": iam_actions(),
        "hosting_regions.json": hosting_regions(),
        "lambda_runtimes.json": lambda_runtimes(),
    }


def one_line_each(document: Mapping[str, Any]) -> str:
    """JSON with a line a key, so that a change of one shows as one."""
    lines = [
        f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'), sort_keys=True)}"
        for key, value in document.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def attributes() -> dict[str, list[str]]:
    """What `Fn::GetAtt` may ask of every resource type."""
    manager = importlib.import_module("cfnlint.schema").PROVIDER_SCHEMA_MANAGER
    names = json.loads(
        (_cfn_lint() / "schemas" / "providers" / f"{REGION}.json").read_text(encoding="utf-8")
    )
    found = {}
    for name in sorted(name for name in names if name.startswith("AWS::")):
        found[name] = sorted(manager.get_resource_schema(REGION, name).get_atts)
    return found


def property_schema(resource_type: str) -> dict[str, Any]:
    """AWS's schema of one type, without prose, and without what only a live account knows."""
    schema = (
        importlib.import_module("cfnlint.schema")
        .PROVIDER_SCHEMA_MANAGER.get_resource_schema(REGION, resource_type)
        .schema
    )
    kept = _stripped({key: value for key, value in schema.items() if key in KEPT.split()})
    return {
        **kept,
        "type": "object",
        "definitions": {
            name: _stripped(each) for name, each in sorted(schema.get("definitions", {}).items())
        },
        "createOnly": _names(schema.get("createOnlyProperties", ())),
        "readOnly": _names(schema.get("readOnlyProperties", ())),
        "identifier": _names(schema.get("primaryIdentifier", ())),
    }


def iam_actions() -> dict[str, dict[str, list[str]]]:
    """Every action of a service: those that take a resource, and those that only take `*`."""
    services = json.loads(
        (_cfn_lint() / "AdditionalSpecs" / "Policies.json").read_text(encoding="utf-8")
    )
    spelling = {word.lower(): word for service in SERVICES.split() for word in _spelled(service)}
    found = {}
    for service in SERVICES.split():
        actions = services[service]["Actions"]
        groups: dict[str, list[str]] = {"narrowed": [], "unnarrowed": []}
        for action, facts in sorted(actions.items()):
            groups["narrowed" if facts.get("Resources") else "unnarrowed"].append(
                spelling.get(action, action)
            )
        found[service] = groups
    return found


def hosting_regions() -> dict[str, list[str]]:
    """Regions that offer each hosting type; none for a type that only the API's list still has:
    retired, or not yet sold.
    """
    path = (
        _cfn_lint() / "schemas" / "extensions" / "aws_sagemaker_hosting" / "instancetype_enum.json"
    )
    regions = json.loads(path.read_text(encoding="utf-8"))
    offered = {
        region: set(each["enum"]) for region, each in regions.items() if isinstance(each, dict)
    }
    session = importlib.import_module("botocore.session").get_session()
    listed = set(
        session.get_service_model("sagemaker").shape_for("ProductionVariantInstanceType").enum
    )
    everything = sorted(listed.union(*offered.values()))
    return {
        name: sorted(region for region, types in offered.items() if name in types)
        for name in everything
    }


def lambda_runtimes() -> dict[str, str | None]:
    """The day from which a runtime takes no new function; null for one that still does."""
    path = _cfn_lint() / "AdditionalSpecs" / "LmbdRuntimeLifecycle.json"
    return {
        name: each["create-block"]
        for name, each in sorted(json.loads(path.read_text(encoding="utf-8")).items())
    }


def _cfn_lint() -> Path:
    return Path(str(importlib.import_module("cfnlint").__file__)).parent / "data"


def _stripped(node: Any) -> Any:
    """A schema without prose; instance types are checked by a rule of their own, with better words."""
    if not isinstance(node, dict):
        return node
    found: dict[str, Any] = {}
    for key, value in node.items():
        if key in ("properties", "patternProperties", "definitions"):
            found[key] = {name: _stripped(each) for name, each in value.items()}
        elif key in ("oneOf", "anyOf"):
            branches = [
                {"required": each["required"]} for each in value if set(each) == {"required"}
            ]
            if len(branches) == len(value):
                found[key] = branches
        elif key == "items":
            found[key] = _stripped(value)
        elif key in KEPT.split() and not (key == "enum" and "ml.m5.large" in value):
            found[key] = value
    return found


def _names(pointers: Any) -> list[str]:
    return sorted(str(pointer).removeprefix("/properties/") for pointer in pointers)


def _spelled(service: str) -> Iterator[str]:
    """Action names as AWS writes them: botocore's operations, and what the resource schemas'
    handlers ask for.
    """
    session = importlib.import_module("botocore.session").get_session()
    services = {
        "elasticloadbalancing": "elbv2",
        "states": "stepfunctions",
        "tag": "resourcegroupstaggingapi",
        "servicequotas": "service-quotas",
    }
    name = {**services, "elasticfilesystem": "efs"}.get(service, service)
    if name in session.get_available_services():
        yield from session.get_service_model(name).operation_names
    yield from (
        "ListBucket",
        "GetObjectVersion",
        "PassRole",
        "PutObjectAcl",
        "InvokeFunction",
        "PutLogEvents",
    )


if __name__ == "__main__":
    sys.exit(main())
