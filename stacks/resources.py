"""CloudFormation resources as data, and the CDK's typed L1 constructs that they become.

Names of endpoint configs are digests of their CloudFormation properties, so properties are computed
first and as CloudFormation spells them. `add_resources` then adds each as the CDK's own class, such
as `aws_sagemaker.CfnModel`: tags, Aspects, cdk-nag and permissions boundaries see all of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

import jsii
from aws_cdk import Aws, Environment, Fn, Stack
from constructs import Construct
from jsii import _reference_map

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from stacks.template import Resources

JSON = frozenset({"AssumeRolePolicyDocument", "PolicyDocument"})
"""Properties that the CDK passes on as they are."""
MAPS = {
    "Lambda": frozenset({"Variables"}),
    "SageMaker": frozenset({"Environment"}),
    "StepFunctions": frozenset({"DefinitionSubstitutions"}),
}
"""Properties whose keys are names of the user's, by the service of the resource type."""
SPELLINGS = {"PromQLCriteria": "promQlCriteria"}
"""Names whose capitals the CDK reads otherwise."""
MODULES = {
    "ApplicationAutoScaling": "aws_applicationautoscaling",
    "Chatbot": "aws_chatbot",
    "CloudWatch": "aws_cloudwatch",
    "CodeBuild": "aws_codebuild",
    "EC2": "aws_ec2",
    "IAM": "aws_iam",
    "Lambda": "aws_lambda",
    "Logs": "aws_logs",
    "SageMaker": "aws_sagemaker",
    "StepFunctions": "aws_stepfunctions",
}
"""Modules of aws-cdk-lib, by the service of a resource type."""


class EnvironmentStack(Stack):
    """A stack of an environment, named by its `part` of it; `tags` are beside the environment's."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        environment: EnvironmentSpec,
        *,
        part: str,
        description: str,
        is_protected: bool = False,
        tags: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            stack_name=names.stack_name(environment, part),
            env=Environment(account=environment.account, region=environment.region),
            description=f"Roundhouse: {description} of {environment.name}",
            tags={"roundhouse-environment": environment.name, **tags},
            termination_protection=is_protected,
        )


def add_resources(stack: Stack, resources: Resources) -> None:
    """Add every resource to a stack, as the CDK's L1 construct of its type.

    The construct's id is the logical id. Raises KeyError for a service that MODULES lacks.
    """
    for logical_id, resource in resources.items():
        construct = _construct_class(resource["Type"])()
        maps = MAPS.get(resource["Type"].split("::")[1], frozenset())
        properties = {
            _camel_case(key): l1_value(key, value, maps)
            for key, value in resource["Properties"].items()
        }
        jsii.create(type(construct), construct, [stack, logical_id, properties])
        for attribute, value in resource.items():
            if attribute not in ("Type", "Properties", "Metadata"):
                jsii.invoke(construct, "addOverride", [attribute, value])
        for key, value in resource.get("Metadata", {}).items():
            jsii.invoke(construct, "addMetadata", [key, value])
        # jsii keeps this object for good, and would hand it to an Aspect in Python. Without it an
        # Aspect gets an object of the CDK's own class.
        _reference_map._refs._refs.pop(construct.__jsii_ref__.ref)


@cache
def _construct_class(resource_type: str) -> type[Any]:
    """Return a class that creates an L1 construct by its name in aws-cdk-lib.

    Importing `aws_cdk.aws_sagemaker` and `aws_cdk.aws_codebuild` takes 250 MB and 3 s, and their
    constructors check types by reflection: docs/decisions, 16.
    """
    _, service, name = resource_type.split("::")
    return type(f"Cfn{name}", (), {"__jsii_type__": f"aws-cdk-lib.{MODULES[service]}.Cfn{name}"})


@cache
def _camel_case(name: str) -> str:
    """Return a property's name in the CDK: `okActions` of `OKActions`, `s3Uri` of `S3Uri`."""
    if name in SPELLINGS:
        return SPELLINGS[name]
    return re.sub(
        "^[A-Z]+?(?=[A-Z][a-z]|[^A-Z]|$)", lambda capitals: capitals.group().lower(), name
    )


def l1_value(key: str, value: Any, maps: frozenset[str] = frozenset()) -> Any:
    """Return a property's value as an L1 construct takes it; nested keys in camel case.

    Keys of the properties `maps` are names, and stay as they are.
    """
    if isinstance(value, list | tuple):
        return [l1_value(key, item, maps) for item in value]
    if not isinstance(value, Mapping) or key in JSON:
        return value
    if key in maps:
        return {name: l1_value("", item) for name, item in value.items()}
    if "Ref" in value:
        return _reference(value["Ref"])
    if "Fn::GetAtt" in value:
        return _attribute(*value["Fn::GetAtt"])
    if "Fn::If" in value:
        condition, if_true, _ = value["Fn::If"]
        return Fn.condition_if(condition, if_true, Aws.NO_VALUE)
    return {_camel_case(name): l1_value(name, item, maps) for name, item in value.items()}


@cache
def _reference(logical_id: str) -> str:
    return Fn.ref(logical_id)


@cache
def _attribute(logical_id: str, attribute: str) -> str:
    return Fn.get_att(logical_id, attribute).to_string()
