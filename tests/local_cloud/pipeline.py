"""Resources of an engine pipeline, to deploy some of them into the local cloud."""

from __future__ import annotations

from typing import Any

from aws_cdk import App, Environment, Stack
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import serving_platforms
from roundhouse_cdk.engine_pipeline import BuildPrograms, EnginePipeline, EnginePipelineProps
from stacks.logical_ids import OWN, keep_logical_ids

TAG = "1"


def pipeline_resources(
    environment: EnvironmentSpec, engines: BuildPrograms, checkpoints: BuildPrograms | None = None
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
