"""Every template of the shipped environments: valid and pure.

Test_security.py tells whom they let do what.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from cfnlint.api import ManualArgs
from cfnlint.api import lint as cfn_lint

from tests.synth.assembly import SOURCES, Stacks, synthesized
from tests.synth.deployments import ROOT, environment, locked, unlocked

pytestmark = pytest.mark.synth


@pytest.fixture(scope="module", params=["dev", "local"])
def stacks(request, tmp_path_factory) -> Stacks:
    return synthesized(
        tmp_path_factory.mktemp(request.param), environment(request.param), locked(request.param)
    )


def statements(template: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every statement of every role's and user's policies.

    A bucket's or key's own policy is about that resource alone.
    """
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::IAM::Role":
            for policy in resource["Properties"].get("Policies", []):
                yield from policy["PolicyDocument"]["Statement"]
        if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
            yield from resource["Properties"]["PolicyDocument"]["Statement"]


def lint(*paths: Path) -> list[str]:
    """What cfn-lint says, warnings too; nothing when all is well."""
    config = ManualArgs(regions=["us-east-1"])
    return [
        str(match)
        for path in paths
        for match in cfn_lint(path.read_text(encoding="utf-8"), config=config)
    ]


def test_templates_pass_cfn_lint(stacks):
    assert lint(*(stack.path for stack in stacks.values())) == []


def test_unbuilt_templates_pass_cfn_lint(tmp_path):
    stacks = synthesized(tmp_path, environment("dev"), unlocked("dev"))
    assert (
        lint(*(stack.path for name, stack in stacks.items() if name.startswith("Endpoint-"))) == []
    )


def test_lint_refuses_an_unknown_instance_type(tmp_path, stacks):
    (path,) = (stack.path for name, stack in stacks.items() if name == "Endpoint-text-shared")
    broken = tmp_path / "broken.template.json"
    text = path.read_text(encoding="utf-8")
    broken.write_text(
        text.replace("ml.g5.xlarge", "ml.g5.tiny").replace("ml.c7i.xlarge", "ml.g5.tiny"),
        encoding="utf-8",
    )
    assert any("ml.g5.tiny" in fault for fault in lint(broken))


def test_synth_is_pure(stacks, tmp_path):
    name = stacks["Foundation"].template["Description"].split()[-1]
    again = synthesized(tmp_path, environment(name), locked(name))
    assert {stack.name: stack.template for stack in again.values()} == {
        stack.name: stack.template for stack in stacks.values()
    }


def test_endpoint_role_reads_exactly_its_engines(stacks):
    name = stacks["Foundation"].template["Description"].split()[-1]
    for deployment in locked(name):
        template = stacks[f"Endpoint-{deployment.name}"].template
        (reads,) = (
            each["Resource"]
            for each in statements(template)
            if each["Sid"] in ("ReadObjects", "ReadEngines")
        )
        paths = {arn.split("/", 1)[1] for arn in reads}
        assert paths == {
            f"engines/{target.engine_key}/model.tar.gz" for target in deployment.targets
        }


def test_gpu_builds_are_there_only_where_the_platform_has_tensorrt(stacks):
    name = stacks["Foundation"].template["Description"].split()[-1]
    projects = stacks["Builds"].properties("AWS::CodeBuild::Project").values()
    environments = {
        (each["Name"], each["Environment"]["Type"], each["Environment"]["ComputeType"])
        for each in projects
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
            each["Name"]: each["Value"] for each in project["Environment"]["EnvironmentVariables"]
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
    before, now = (each["Endpoint-text-shared"].only(model) for each in (stacks, after))
    assert before["PrimaryContainer"]["Image"] != now["PrimaryContainer"]["Image"]
    assert before["ModelName"] != now["ModelName"]
    assert stacks["Foundation"].template == after["Foundation"].template
    assert stacks["Builds"].template == after["Builds"].template


def test_dashboard_selects_every_endpoint_and_draws_the_slo(stacks):
    name = stacks["Foundation"].template["Description"].split()[-1]
    body = json.loads(stacks["Observability"].only("AWS::CloudWatch::Dashboard")["DashboardBody"])
    (selector,) = body["variables"]
    assert [value["value"] for value in selector["values"]] == [
        f"{name}-sentence-embedder",
        f"{name}-text-shared",
    ]
    annotations = [
        widget["properties"].get("annotations", {}).get("horizontal", [])
        for widget in body["widgets"]
    ]
    lines = {(line["label"], line["value"]) for found in annotations for line in found}
    assert ("SLO of sentence-embedder, text-shared", {"dev": 50, "local": 2000}[name]) in lines
    assert ("measured capacity of sentence-embedder, text-shared", 24_000) in lines


def test_templates_name_no_path_of_this_machine(stacks):
    assert not any(str(ROOT) in json.dumps(stack.template) for stack in stacks.values())
