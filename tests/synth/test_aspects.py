"""Tags, Aspects, boundaries and cdk-nag, which are set from outside, reach every resource."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsii
import pytest
from aws_cdk import (
    App,
    Aspects,
    CfnResource,
    IAspect,
    Tags,
    aws_applicationautoscaling,
    aws_cloudwatch,
    aws_codebuild,
    aws_iam,
    aws_logs,
    aws_sagemaker,
    aws_stepfunctions,
)
from cdk_nag import AwsSolutionsChecks
from constructs import IConstruct

from tests.synth.assembly import SynthesizedStack, read_stacks
from tests.synth.full_stage import full_stage

pytestmark = pytest.mark.synth

CLASSES = {
    "AWS::ApplicationAutoScaling::ScalableTarget": aws_applicationautoscaling.CfnScalableTarget,
    "AWS::ApplicationAutoScaling::ScalingPolicy": aws_applicationautoscaling.CfnScalingPolicy,
    "AWS::CloudWatch::Alarm": aws_cloudwatch.CfnAlarm,
    "AWS::CloudWatch::Dashboard": aws_cloudwatch.CfnDashboard,
    "AWS::CodeBuild::Project": aws_codebuild.CfnProject,
    "AWS::IAM::Policy": aws_iam.CfnPolicy,
    "AWS::IAM::Role": aws_iam.CfnRole,
    "AWS::Logs::LogGroup": aws_logs.CfnLogGroup,
    "AWS::SageMaker::Endpoint": aws_sagemaker.CfnEndpoint,
    "AWS::SageMaker::EndpointConfig": aws_sagemaker.CfnEndpointConfig,
    "AWS::SageMaker::Model": aws_sagemaker.CfnModel,
    "AWS::StepFunctions::StateMachine": aws_stepfunctions.CfnStateMachine,
}
TAGGABLE = set(CLASSES) - {
    "AWS::ApplicationAutoScaling::ScalableTarget",
    "AWS::ApplicationAutoScaling::ScalingPolicy",
    "AWS::CloudWatch::Dashboard",
    "AWS::IAM::Policy",
}
BOUNDARY = "arn:aws:iam::111122223333:policy/from-outside"


@jsii.implements(IAspect)
class Visitor:
    """Records the class and the path of every resource, and encrypts endpoint volumes."""

    def __init__(self) -> None:
        self.classes: dict[str, str] = {}
        self.types: dict[str, str] = {}

    def visit(self, node: IConstruct) -> None:
        """Record one construct."""
        if not CfnResource.is_cfn_resource(node):
            return
        resource_type = node.cfn_resource_type
        self.types[node.node.path] = resource_type
        if resource_type in CLASSES:
            self.classes[node.node.path] = type(node).__name__
            assert isinstance(node, CLASSES[resource_type])
        if isinstance(node, aws_sagemaker.CfnEndpointConfig):
            node.kms_key_id = "alias/from-outside"


@pytest.fixture(scope="module")
def visited(tmp_path_factory) -> tuple[Visitor, dict[str, SynthesizedStack]]:
    """Every stack of an environment with every setting, with an Aspect, a tag and a boundary."""
    folder = tmp_path_factory.mktemp("tree")
    app = App(outdir=str(folder / "out"), analytics_reporting=False)
    stage = full_stage(app, folder)
    visitor = Visitor()
    Aspects.of(stage).add(visitor)
    Tags.of(stage).add("cost-center", "4711")
    aws_iam.PermissionsBoundary.of(stage).apply(
        aws_iam.ManagedPolicy.from_managed_policy_arn(stage, "Boundary", BOUNDARY)
    )
    app.synth()
    return visitor, {stack.name: stack for stack in read_stacks(Path(folder / "out"))}


def resources(stacks: dict[str, SynthesizedStack]) -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{name}/{logical_id}", resource)
        for name, stack in stacks.items()
        for logical_id, resource in stack.template["Resources"].items()
    ]


def test_aspect_visits_every_resource_as_the_cdk_class_of_its_type(visited):
    visitor, stacks = visited
    written = [resource["Type"] for _, resource in resources(stacks)]
    assert sorted(visitor.types.values()) == sorted(written)
    assert set(CLASSES) <= set(written)
    assert len(visitor.classes) == sum(resource_type in CLASSES for resource_type in written)


def test_aspect_changes_a_property(visited):
    _, stacks = visited
    config = stacks["Endpoint-example"].only("AWS::SageMaker::EndpointConfig")
    assert config["KmsKeyId"] == "alias/from-outside"


def test_tag_from_outside_is_on_every_resource_that_takes_tags(visited):
    _, stacks = visited
    untagged = [
        path
        for path, resource in resources(stacks)
        if resource["Type"] in TAGGABLE
        and '"4711"' not in json.dumps(resource["Properties"].get("Tags", []))
    ]
    assert untagged == []


def test_stacks_with_state_are_protected_from_deletion(visited):
    _, stacks = visited
    protected = {name for name, stack in stacks.items() if stack.is_protected}
    assert protected == {
        "Foundation",
        *(f"Endpoint-{name}" for name in ("example", "shared", "chat")),
    }


def test_permissions_boundary_from_outside_is_on_every_role(visited):
    _, stacks = visited
    roles = [resource for _, resource in resources(stacks) if resource["Type"] == "AWS::IAM::Role"]
    assert len(roles) >= 6
    assert {role["Properties"]["PermissionsBoundary"] for role in roles} == {BOUNDARY}


def test_environment_with_every_setting_gives_a_reason_for_every_finding(tmp_path):
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    Aspects.of(full_stage(app, tmp_path)).add(AwsSolutionsChecks())
    app.synth()
    found = [
        f"{stack.name}: {message}"
        for stack in read_stacks(tmp_path / "out")
        for message in (*stack.errors, *stack.warnings)
        if message.startswith("AwsSolutions-")
    ]
    assert found == []
