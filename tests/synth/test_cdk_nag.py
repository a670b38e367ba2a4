"""cdk-nag's AwsSolutions pack as an Aspect: every finding has its reason in the stacks."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App, Aspects, aws_iam
from cdk_nag import AwsSolutionsChecks

from onboarding.resolve import deployments
from onboarding.tree import read_tree
from stacks.environment_stage import EnvironmentStage
from tests.synth.assembly import SOURCES, read_stacks
from tests.synth.deployments import with_locks
from tests.synth.endpoint_cases import CAPTURE, MODEL, endpoint_settings
from tests.synth.full_stage import SETTINGS, neighbours
from tests.synth.generation_cases import SCALED, generator_files, lock_checkpoints
from tests.unit.onboarding.trees import tree_root

pytestmark = pytest.mark.synth


def stage(app: App, folder: Path) -> EnvironmentStage:
    changes = {
        "environments/cloud.yaml": {"name: cloud\n": SETTINGS},
        MODEL: endpoint_settings(CAPTURE, "dashboard: true"),
        **generator_files(**SCALED),
    }
    root = tree_root(folder, changes)
    generators = lock_checkpoints(root)
    tree = read_tree(root)
    environment = tree.environments["cloud"]
    return EnvironmentStage(
        app,
        environment=environment.model_copy(update={"promotes_from": "staging"}),
        deployments=tuple(map(with_locks, deployments(tree, "cloud"))),
        generators=generators,
        sources=SOURCES,
        environments=neighbours(environment),
    )


def findings(app: App, environment: EnvironmentStage, folder: Path) -> list[str]:
    Aspects.of(environment).add(AwsSolutionsChecks())
    app.synth()
    return [
        f"{stack.name}: {message}"
        for stack in read_stacks(folder)
        for message in (*stack.errors, *stack.warnings)
        if message.startswith("AwsSolutions-")
    ]


def test_environment_with_every_setting_gives_a_reason_for_every_finding(tmp_path):
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    environment = stage(app, tmp_path)
    assert findings(app, environment, tmp_path / "out") == []


def test_refuses_a_managed_policy_and_a_wildcard_without_a_reason(tmp_path):
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    environment = stage(app, tmp_path)
    role = environment.node.find_child("Endpoint-example").node.find_child("Role")
    assert isinstance(role, aws_iam.CfnRole)
    role.managed_policy_arns = ["arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"]
    role.policies = [
        {
            "policyName": "wide",
            "policyDocument": {
                "Version": "2012-10-17",
                "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "arn:aws:s3:::*"}],
            },
        }
    ]
    found = findings(app, environment, tmp_path / "out")
    assert {finding.split("[")[0] for finding in found} == {
        "Endpoint-example: AwsSolutions-IAM4",
        "Endpoint-example: AwsSolutions-IAM5",
    }
    assert any("Action::s3:*" in finding for finding in found)
