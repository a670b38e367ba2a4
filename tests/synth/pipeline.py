"""Resources of an engine pipeline, and the golden definition of its state machine.

`python -m tests.synth.pipeline` writes that.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_codebuild as codebuild
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec, NetworkSpec
from onboarding.platform import serving_platforms
from roundhouse_cdk.engine_pipeline import BuildPrograms, EnginePipeline, EnginePipelineProps
from stacks.environment_stack import OWN, keep_logical_ids
from tests.synth.deployments import environment

GOLDEN = Path(__file__).parent / "golden" / "build-machine.yaml"
IMAGE = (
    "111122223333.dkr.ecr.us-east-1.amazonaws.com/roundhouse-dev/builder-gpu:0123456789abcdef0123"
)
FLEET = "arn:aws:codebuild:us-east-1:111122223333:fleet/gpu:0b1c2d3e-0000-4000-8000-000000000000"
KEY = "arn:aws:kms:us-east-1:111122223333:key/0b1c2d3e-0000-4000-8000-000000000000"
NETWORK = NetworkSpec(
    vpc_id="vpc-0000000a",
    subnet_ids=("subnet-0000000a", "subnet-0000000b"),
    security_group_ids=("sg-0000000a",),
)
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


def whole() -> EnvironmentSpec:
    """An environment that names everything the builds can use."""
    return environment("dev").model_copy(
        update={"gpu_fleet_arn": FLEET, "kms_key_arn": KEY, "network": NETWORK}
    )


@cache
def definitions() -> dict[str, dict[str, Any]]:
    """The machines of the shipped `dev`, of one that names everything, and with generators."""
    return {
        "dev": definition(pipeline_resources(environment("dev"))),
        "whole": definition(pipeline_resources(whole())),
        "generators": definition(pipeline_resources(environment("dev"), checkpoints=PROGRAMS)),
    }


def text(definition: dict[str, Any]) -> str:
    """A definition as its file has it."""
    plain = json.loads(json.dumps(definition))
    return yaml.dump(
        plain, width=10**6, sort_keys=False, allow_unicode=True, default_flow_style=None
    )


def golden_text() -> str:
    """The definitions that name everything, and that build checkpoints, golden."""
    found = definitions()
    return "".join(f"# {name}\n{text(found[name])}" for name in ("whole", "generators"))


if __name__ == "__main__":
    GOLDEN.write_text(golden_text(), encoding="utf-8")
