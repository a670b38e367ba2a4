"""Every template of the shipped environments: valid and pure.

Test_security.py tells whom they let do what.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
import yaml
from aws_cdk import App, CfnResource, CloudFormationValidatePlugin, Stack, Validations

from stacks.dashboards.environment import dashboard_body
from tests.synth.assembly import SOURCES, Stacks, context, synthesized
from tests.synth.deployments import ROOT, environment, locked

pytestmark = pytest.mark.synth


@pytest.fixture(scope="module", params=["dev", "local"])
def stacks(request, tmp_path_factory) -> Stacks:
    return synthesized(
        tmp_path_factory.mktemp(request.param), environment(request.param), locked(request.param)
    )


def test_synth_is_pure(stacks, tmp_path):
    name = stacks["Foundation"].template["Description"].split()[-1]
    again = synthesized(tmp_path, environment(name), locked(name))
    assert {stack.name: stack.template for stack in again.values()} == {
        stack.name: stack.template for stack in stacks.values()
    }


def test_gpu_builds_are_there_only_where_the_platform_has_tensorrt(stacks):
    name = stacks["Foundation"].template["Description"].split()[-1]
    projects = stacks["Builds"].properties("AWS::CodeBuild::Project").values()
    environments = {
        (item["Name"], item["Environment"]["Type"], item["Environment"]["ComputeType"])
        for item in projects
    }
    expected = {(f"roundhouse-{name}-build-cpu", "LINUX_CONTAINER", "BUILD_GENERAL1_LARGE")}
    if name == "dev":
        expected.add(("roundhouse-dev-build-gpu", "LINUX_GPU_CONTAINER", "BUILD_GENERAL1_SMALL"))
    assert environments == expected


def test_build_project_runs_the_buildspec_without_a_source(stacks):
    for project in stacks["Builds"].properties("AWS::CodeBuild::Project").values():
        assert project["Source"]["Type"] == "NO_SOURCE"
        assert "python -m engine_build" in " ".join(
            yaml.safe_load(project["Source"]["BuildSpec"])["phases"]["build"]["commands"]
        )
        variables = {
            variable["Name"]: variable["Value"]
            for variable in project["Environment"]["EnvironmentVariables"]
        }
        assert set(variables) == {"ROUNDHOUSE_ENVIRONMENT", "ROUNDHOUSE_BUCKET"}


def test_changed_container_source_changes_the_image_and_the_model(stacks, tmp_path):
    name = stacks["Foundation"].template["Description"].split()[-1]
    files = {
        **SOURCES.image_files,
        "triton": {**SOURCES.image_files["triton"], "container/new.py": b"x"},
    }
    after = synthesized(
        tmp_path, environment(name), locked(name), dataclasses.replace(SOURCES, image_files=files)
    )
    model = "AWS::SageMaker::Model"
    before, now = (entry["Endpoint-text-shared"].only(model) for entry in (stacks, after))
    assert before["PrimaryContainer"]["Image"] != now["PrimaryContainer"]["Image"]
    assert before["ModelName"] != now["ModelName"]
    assert stacks["Foundation"].template == after["Foundation"].template
    assert stacks["Builds"].template == after["Builds"].template


def test_templates_name_no_path_of_this_machine(stacks):
    assert not any(str(ROOT) in json.dumps(stack.template) for stack in stacks.values())


def test_dashboard_is_that_of_every_endpoint(stacks):
    name = stacks["Foundation"].template["Description"].split()[-1]
    body = json.loads(stacks["Observability"].only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    assert body == dashboard_body(locked(name))


def test_refuses_what_the_built_in_validation_refuses(tmp_path):
    """The switch in cdk.json makes errors of what would be warnings."""
    app = App(outdir=str(tmp_path), context=context())
    Validations.of(app).add_plugins(CloudFormationValidatePlugin())
    properties = {"RetentionInDays": "never"}
    CfnResource(Stack(app, "Logs"), "Group", type="AWS::Logs::LogGroup", properties=properties)
    with pytest.raises(RuntimeError, match="F3012"):
        app.synth()
