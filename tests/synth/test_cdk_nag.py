"""cdk-nag's AwsSolutions pack runs as an Aspect, and finds nothing without a reason here."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App, Aspects, Stack, aws_iam
from cdk_nag import AwsSolutionsChecks, NagPackSuppression, NagSuppressions

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

REASONS = {
    "AwsSolutions-CB4": "every build names its own output in S3, which the bucket encrypts by key",
    "AwsSolutions-CB5": "builders are images of this repository, built from pinned base images",
    "AwsSolutions-S1": "access is logged by CloudTrail data events, which the account owner sets",
    "AwsSolutions-SF1": "every execution's history stays for 90 days; log delivery needs eight "
    "actions on every log of the account",
    "AwsSolutions-SF2": "the machine waits for builds of minutes; its history has all times",
}
"""Why a rule does not apply, by its id."""
WILDCARDS = {
    r"/^Resource::arn:aws:cloudformation:.*:stack\/roundhouse-cloud-\*\/\*$/": "own stacks alone",
    r"/^Resource::arn:aws:cloudwatch:.*:alarm:cloud-\*$/": "own alarms; read only",
    r"/^Resource::arn:aws:cloudwatch:.*:alarm:\*$/": "alarms are listed by state; read only",
    r"/^Resource::arn:aws:cloudwatch::.*:dashboard\/roundhouse-cloud\*$/": "own dashboards",
    r"/^Resource::arn:aws:iam::.*:role\/roundhouse-cloud-\*$/": "own roles; read only",
    r"/^Resource::arn:aws:codebuild:.*:project\/roundhouse-cloud-build-\*$/": "own projects alone",
    r"/^Resource::arn:aws:ecr:.*:repository\/roundhouse-cloud\/\*$/": "own images; read only",
    r"/^Resource::arn:aws:sagemaker:.*:"
    r"(endpoint|endpoint-config|inference-component|model)\/cloud-\*$/": "to read it",
    r"/^Resource::arn:aws:sagemaker:.*:(endpoint|endpoint-config|training-job)\/\*$/": "for quotas",
    r"/^Resource::arn:aws:states:.*:mapRun:roundhouse-cloud-builds[:\/]\*$/": "own executions",
    r"/^Resource::arn:aws:logs:.*:log-group:.*\*$/": "logs of own builds; read only",
    r"/^Resource::\*$/": "actions that know no resource: log-ins, metrics, EC2's describe actions",
    r"/^Resource::arn:aws:ec2:.*:network-interface\/\*$/": "an interface has no name before it is",
    r"/^Resource::arn:aws:kms:.*:key\/\*$/": "the alias in the condition names the key",
    r"/^Resource::arn:aws:logs:.*:log-group:.*:\*$/": "IAM knows a log group by this form",
    r"/^Resource::arn:aws:logs:.*:log-stream:.*\*$/": "a service names the streams of one group",
    r"/^Resource::arn:aws:s3:::roundhouse-[a-z0-9-]+\/[a-z-]+\/([a-z0-9-]+\/)?\*$/": "objects "
    "under one prefix have no name before they are there",
    r"/^Resource::arn:aws:s3:::company-models\/nlp\/\*$/": "one prefix of a source bucket",
    r"/^Resource::arn:aws:sagemaker:.*:(endpoint|endpoint-config|model)"
    r"\/roundhouse-cloud--\*$/": "what recommendation jobs of one prefix make",
    r"/^Resource::arn:aws:sagemaker:.*:training-job\/roundhouse-cloud--\*$/": "jobs of one prefix",
    r"/^Resource::arn:aws:states:.*:execution:roundhouse-cloud-builds[:\/]\*$/": "own executions",
}
"""Why AwsSolutions-IAM5, a wildcard in a statement, does not apply, by what it finds."""


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


def suppress(environment: EnvironmentStage) -> None:
    """Give every stack the reasons."""
    suppressions = [NagPackSuppression(id=rule, reason=reason) for rule, reason in REASONS.items()]
    suppressions += [
        NagPackSuppression(id="AwsSolutions-IAM5", reason=reason, applies_to=[{"regex": pattern}])
        for pattern, reason in WILDCARDS.items()
    ]
    for stack in environment.node.children:
        assert isinstance(stack, Stack)
        NagSuppressions.add_stack_suppressions(stack, suppressions)


def findings(app: App, environment: EnvironmentStage, folder: Path) -> list[str]:
    Aspects.of(environment).add(AwsSolutionsChecks())
    app.synth()
    return [
        f"{stack.name}: {message}"
        for stack in read_stacks(folder)
        for message in (*stack.errors, *stack.warnings)
        if message.startswith("AwsSolutions-")
    ]


def test_environment_with_every_setting_has_no_finding_without_a_reason(tmp_path):
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    environment = stage(app, tmp_path)
    suppress(environment)
    assert findings(app, environment, tmp_path / "out") == []


def test_refuses_a_managed_policy_and_a_wildcard_without_a_reason(tmp_path):
    app = App(outdir=str(tmp_path / "out"), analytics_reporting=False)
    environment = stage(app, tmp_path)
    suppress(environment)
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
