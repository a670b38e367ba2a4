"""CloudFormation's role may do what the handlers of our resource types need, on our names."""

from __future__ import annotations

import json
from fnmatch import fnmatchcase

import pytest
from typer.testing import CliRunner

from roundhouse.cli.app import app
from roundhouse.gitops.execution_policy import (
    ENRICHMENTS,
    RESOURCE_TYPES,
    UNUSED,
    UNUSED_ACTIONS,
    WITHOUT_SCHEMA,
    execution_policies,
    handler_actions,
    unused_reason,
)
from tests.synth.deployments import ROOT, environment
from tests.synth.full_stage import KINDS, SETTINGS, everything

pytestmark = pytest.mark.synth

NAMED = {
    "AWS::CloudWatch::Alarm": ("cloudwatch:PutMetricAlarm", "alarm:{AlarmName}"),
    "AWS::CloudWatch::Dashboard": ("cloudwatch:PutDashboard", "dashboard/{DashboardName}"),
    "AWS::CodeBuild::Project": ("codebuild:CreateProject", "project/{Name}"),
    "AWS::ECR::Repository": ("ecr:CreateRepository", "repository/{RepositoryName}"),
    "AWS::Lambda::Function": ("lambda:CreateFunction", "function:{FunctionName}"),
    "AWS::Logs::LogGroup": ("logs:CreateLogGroup", "log-group:{LogGroupName}"),
    "AWS::S3::Bucket": ("s3:CreateBucket", "{BucketName}"),
    "AWS::SNS::Topic": ("sns:CreateTopic", "{TopicName}"),
    "AWS::SageMaker::Endpoint": ("sagemaker:CreateEndpoint", "endpoint/{EndpointName}"),
    "AWS::SageMaker::EndpointConfig": (
        "sagemaker:CreateEndpointConfig",
        "endpoint-config/{EndpointConfigName}",
    ),
    "AWS::SageMaker::InferenceComponent": (
        "sagemaker:CreateInferenceComponent",
        "inference-component/{InferenceComponentName}",
    ),
    "AWS::SageMaker::Model": ("sagemaker:CreateModel", "model/{ModelName}"),
    "AWS::StepFunctions::StateMachine": (
        "states:CreateStateMachine",
        "stateMachine:{StateMachineName}",
    ),
}
"""How IAM knows a resource of a type that has a name in our templates, and who makes it."""


@pytest.fixture(scope="module")
def stages(tmp_path_factory):
    return [
        everything(tmp_path_factory.mktemp(kind), SETTINGS, settings)
        for kind, settings in KINDS.items()
    ]


def resources(stages):
    for spec, stacks in stages:
        for name, stack in stacks.items():
            for logical_id, resource in stack.template["Resources"].items():
                yield spec, f"{name}/{logical_id}", resource


def statements(documents):
    return [statement for document in documents for statement in document["Statement"]]


def test_types_are_those_of_a_whole_environments_templates(stages):
    assert {resource["Type"] for _, _, resource in resources(stages)} == set(RESOURCE_TYPES)


@pytest.mark.parametrize("resource_type", RESOURCE_TYPES)
def test_every_action_of_a_types_handlers_is_allowed_or_has_a_reason_not_to_be(resource_type):
    creating, plain = (
        {
            action
            for statement in statements(execution_policies(spec))
            for action in statement["Action"]
        }
        for spec in (
            environment("dev").model_copy(update={"otel_enrichment": "create"}),
            environment("dev"),
        )
    )
    needed = WITHOUT_SCHEMA.get(resource_type) or handler_actions(resource_type)
    assert needed
    allowed = creating if resource_type in ENRICHMENTS else plain
    assert not {action for action in plain if "Enrichment" in action}
    assert {action for action in needed if unused_reason(action) is None} <= allowed


def test_every_reason_is_needed():
    named = {
        action
        for kind in RESOURCE_TYPES
        if kind not in WITHOUT_SCHEMA
        for action in handler_actions(kind)
    }
    assert {action.partition(":")[0] for action in named} >= set(UNUSED)
    assert named >= set(UNUSED_ACTIONS)
    without = {kind for kind in WITHOUT_SCHEMA if _is_known(kind)}
    assert without == set()


def _is_known(kind):
    try:
        return bool(handler_actions(kind))
    except KeyError:
        return False


def test_names_of_every_resource_lie_within_the_policy(stages):
    outside = []
    for spec, where, resource in resources(stages):
        action, form = NAMED.get(resource["Type"], (None, None))
        if action is None:
            continue
        arn_end = form.format(**resource["Properties"])
        patterns = [
            pattern
            for statement in statements(execution_policies(spec))
            if action in statement["Action"]
            for pattern in statement["Resource"]
        ]
        if not any(fnmatchcase(arn_end, pattern.split(":", 5)[5]) for pattern in patterns):
            outside.append((where, arn_end))
    assert outside == []


def test_documents_fit_into_managed_policies_and_allow_no_wildcard_action():
    documents = execution_policies(environment("dev"))
    assert len(documents) <= 10
    for document in documents:
        assert len(json.dumps(document, separators=(",", ":"))) <= 6144
    for statement in statements(documents):
        assert not any("*" in action for action in statement["Action"])
        assert statement["Resource"] != ["*"] or statement["Sid"] == "Any"
    sids = [statement["Sid"] for statement in statements(documents)]
    assert len(set(sids)) == len(sids)


def test_roles_are_made_under_the_environments_boundary_alone():
    arn = "arn:aws:iam::111122223333:policy/boundary"
    spec = environment("dev").model_copy(update={"permissions_boundary_arn": arn})
    found = statements(execution_policies(spec))
    (bounded,) = [item for item in found if "iam:PutRolePolicy" in item["Action"]]
    assert bounded["Condition"] == {"StringEquals": {"iam:PermissionsBoundary": arn}}
    assert not any("iam:DeleteRolePermissionsBoundary" in item["Action"] for item in found)


def test_command_prints_the_documents():
    result = CliRunner().invoke(
        app, ["plan", "--execution-policy", "--env", "dev", "--root", str(ROOT)]
    )
    assert result.exit_code == 0
    assert json.loads(result.stdout)[0]["Version"] == "2012-10-17"
