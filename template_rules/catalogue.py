"""What AWS takes: property schemas, attributes, IAM actions, hosting types, runtimes.

The files say how they were made.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import resources
from typing import Any


@cache
def _content(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(
        resources.files("template_rules.data").joinpath(name).read_text(encoding="utf-8")
    )
    return content


def attributes() -> dict[str, list[str]]:
    """What `Fn::GetAtt` may ask, by resource type: every type that CloudFormation knows is a key."""
    return _content("attributes.json")


def property_schemas() -> dict[str, dict[str, Any]]:
    """AWS's schemas of the types that a deployment of ours may hold."""
    return _content("property_schemas.json")


def iam_actions() -> dict[str, dict[str, list[str]]]:
    """Actions of each service: `narrowed` take a resource, `unnarrowed` only `*`."""
    return _content("iam_actions.json")


def hosting_regions() -> dict[str, list[str]]:
    """Regions that offer each SageMaker hosting type; none is retired, or not yet sold."""
    return _content("hosting_regions.json")


def hosting_region_names() -> list[str]:
    """Every region that offers some SageMaker hosting type."""
    return sorted({region for regions in hosting_regions().values() for region in regions})


def lambda_runtimes() -> dict[str, str | None]:
    """The day from which each Lambda runtime takes no new function; None for one that still does."""
    return _content("lambda_runtimes.json")


@cache
def action_words(service: str) -> tuple[dict[str, str], frozenset[str]]:
    """A service's actions in lower case, each with AWS's own spelling, and those that only take
    `*`.
    """
    groups = iam_actions()[service]
    spelled = {
        action.lower(): action
        for group in (*groups.values(), _OF_OLD.get(service, ()))
        for action in group
    }
    everywhere = {action.lower() for action in groups["unnarrowed"]} | {
        verb for of, verb in _ALWAYS_EVERYTHING if of == service
    }
    return spelled, frozenset(everywhere)


@cache
def name_property(resource_type: str) -> str | None:
    """The property that names a resource for good: `EndpointName`, `BucketName`; None where AWS
    names it, or nothing does.
    """
    if resource_type in _NAMES:
        return _NAMES[resource_type]
    schema = property_schemas().get(resource_type)
    if schema is None or len(schema["identifier"]) != 1:
        return None
    (identifier,) = schema["identifier"]
    return (
        identifier
        if identifier in schema["properties"] and identifier not in schema["readOnly"]
        else None
    )


_ALWAYS_EVERYTHING = {("cloudwatch", "putmetricdata")}
"""Its one resource is a dataset of OpenTelemetry; for what everybody publishes there is none."""
_OF_OLD = {"sns": ("Receive",)}
"""Actions that no list has any more, and that IAM still takes: SNS's own default policy has this
one.
"""
_NAMES = {
    "AWS::SageMaker::Endpoint": "EndpointName",
    "AWS::SageMaker::EndpointConfig": "EndpointConfigName",
    "AWS::SageMaker::Model": "ModelName",
    "AWS::SageMaker::InferenceComponent": "InferenceComponentName",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
    "AWS::SNS::Topic": "TopicName",
    "AWS::SQS::Queue": "QueueName",
    "AWS::CodeBuild::Project": "Name",
    "AWS::Events::Rule": "Name",
    "AWS::IAM::ManagedPolicy": "ManagedPolicyName",
}
"""Types whose identifier is an ARN, or an id of AWS's, but that have a name of their own."""
