"""Resources of a builds stack, to deploy some of them into the local cloud."""

from __future__ import annotations

from typing import Any

from aws_cdk import App
from aws_cdk.assertions import Template

from onboarding.environment_spec import EnvironmentSpec
from onboarding.platform import serving_platforms
from roundhouse_cdk.engine_pipeline import BuildPrograms
from stacks.pipeline_stacks import BuildsStack

TAG = "1"


def pipeline_resources(
    environment: EnvironmentSpec, engines: BuildPrograms, checkpoints: BuildPrograms | None = None
) -> dict[str, dict[str, Any]]:
    """Every resource of the stack by logical id; all images have the tag TAG."""
    stack = BuildsStack(
        App(context={"@aws-cdk/core:enablePartitionLiterals": True}),
        "Builds",
        environment=environment,
        platform=serving_platforms()[environment.platform],
        image_tags=dict.fromkeys(("builder-cpu", "builder-gpu", "builder-quantizer"), TAG),
        engines=engines,
        checkpoints=checkpoints,
    )
    resources: dict[str, dict[str, Any]] = Template.from_stack(stack).to_json()["Resources"]
    return resources
