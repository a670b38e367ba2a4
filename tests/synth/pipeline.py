"""Resources of an engine pipeline, and the definition of its state machine."""

from __future__ import annotations

import json
from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import serving_platforms
from roundhouse_cdk.engine_pipeline import BuildPrograms, EnginePipeline, EnginePipelineProps
from stacks.environment_stack import OWN, keep_logical_ids

TAG = "0123456789abcdef0123"
PROGRAMS = BuildPrograms(
    buildspec=codebuild.BuildSpec.from_object({"version": "0.2"}),
    signer="def handler(event, context): ...",
)


def pipeline_resources(
    environment: EnvironmentSpec,
    engines: BuildPrograms = PROGRAMS,
    checkpoints: BuildPrograms | None = None,
) -> dict[str, dict[str, Any]]:
    """Every resource of the pipeline by logical id; all images have the tag TAG."""
    props = EnginePipelineProps(
        environment=environment,
        platform=serving_platforms()[environment.platform],
        image_tags=dict.fromkeys(("builder-cpu", "builder-gpu", "builder-quantizer"), TAG),
        engines=engines,
        checkpoints=checkpoints,
    )
    app = App(context={"@aws-cdk/core:enablePartitionLiterals": True})
    env = Environment(account=environment.account, region=environment.region)
    stack = Stack(app, "Builds", env=env)
    keep_logical_ids(EnginePipeline(stack, OWN, props=props))
    resources: dict[str, dict[str, Any]] = Template.from_stack(stack).to_json()["Resources"]
    return resources


def definition_text(resources: dict[str, dict[str, Any]]) -> str:
    """The definition of the state machine, with the names that CloudFormation would put in."""

    def text(part: str | dict[str, Any]) -> str:
        match part:
            case str():
                return part
            case {"Ref": "AWS::Partition"}:
                return "aws"
            case {"Fn::GetAtt": [signer, "Arn"]}:
                name = resources[signer]["Properties"]["FunctionName"]
                return f"arn:aws:lambda:us-east-1:111122223333:function:{name}"
        raise ValueError(f"a part of a definition is not known here: {part}")

    return "".join(map(text, resources["Machine"]["Properties"]["DefinitionString"]["Fn::Join"][1]))


def definition(resources: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The same, read."""
    found: dict[str, Any] = json.loads(definition_text(resources))
    return found
