"""A sound template to break: our dev environment in one template, and resources beside it."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.synth.assembly import Stacks, synthesized
from tests.synth.deployments import environment, locked

Document = dict[str, Any]

BESIDE: Document = {
    "Function": {
        "Type": "AWS::Lambda::Function",
        "Properties": {
            "Code": {"ZipFile": "def handler(event, context):\n    return event\n"},
            "Handler": "index.handler",
            "Role": {"Fn::GetAtt": ["FunctionRole", "Arn"]},
            "Runtime": "python3.13",
        },
    },
    "FunctionRole": {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "lambda.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                    }
                ],
            }
        },
    },
    "Parameter": {
        "Type": "AWS::SSM::Parameter",
        "Properties": {"Type": "String", "Value": "24.09"},
    },
    "FailedBuilds": {
        "Type": "AWS::Events::Rule",
        "Properties": {
            "EventPattern": {"source": ["aws.codebuild"], "detail": {"build-status": ["FAILED"]}},
            "Targets": [{"Id": "Function", "Arn": {"Fn::GetAtt": ["Function", "Arn"]}}],
        },
    },
    "MayCall": {
        "Type": "AWS::Lambda::Permission",
        "Properties": {
            "Action": "lambda:InvokeFunction",
            "FunctionName": {"Ref": "Function"},
            "Principal": "events.amazonaws.com",
            "SourceArn": {"Fn::GetAtt": ["FailedBuilds", "Arn"]},
        },
    },
}


def base(folder: Path) -> Document:
    """The whole dev environment, synthesised with every engine in its lock, as one template."""
    return merge_lines(synthesized(folder, environment("dev"), locked("dev")))


def merge_lines(stacks: Stacks) -> Document:
    """One template of all stacks; each resource's logical id gets its stack's name in front."""
    resources: Document = {}
    shared: Document = {"Parameters": {}, "Conditions": {}}
    for name, stack in stacks.items():
        prefix = "".join(part.capitalize() for part in name.split("-"))
        own = set(stack.template["Resources"])
        for logical_id, resource in stack.template["Resources"].items():
            resources[prefix + logical_id] = _renamed(resource, own, prefix)
        for section, entries in shared.items():
            for name_in_stack, entry in stack.template.get(section, {}).items():
                assert entries.setdefault(name_in_stack, entry) == entry, name_in_stack
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        **{section: entries for section, entries in shared.items() if entries},
        "Resources": {**resources, **copy.deepcopy(BESIDE)},
    }


def _renamed(value: Any, own: Iterable[str], prefix: str) -> Any:
    if isinstance(value, list):
        return [_renamed(item, own, prefix) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _renamed(item, own, prefix) for key, item in value.items()}
    if set(value) == {"Ref"} and value["Ref"] in own:
        return {"Ref": prefix + value["Ref"]}
    if set(value) == {"Fn::GetAtt"} and value["Fn::GetAtt"][0] in own:
        return {"Fn::GetAtt": [prefix + value["Fn::GetAtt"][0], *value["Fn::GetAtt"][1:]]}
    if "DependsOn" in value and "Type" in value:
        names = value["DependsOn"] if isinstance(value["DependsOn"], list) else [value["DependsOn"]]
        found["DependsOn"] = [prefix + name for name in names]
    return found
