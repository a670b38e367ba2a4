"""The scheduled comparison of captures: what its roles may do, and what it runs from."""

from __future__ import annotations

import pytest

from onboarding import names
from onboarding.environment_spec import EnvironmentSpec
from stacks.builds.projects import CPU
from stacks.builds.roles import project_statements
from stacks.endpoint.capture_check import (
    capture_check_resources,
    capture_check_source,
    capture_check_statements,
)
from tests.synth.deployments import with_engine_key
from tests.synth.endpoint_cases import (
    CAPTURE,
    CHECKED,
    IMAGES,
    MODEL,
    endpoint_settings,
    example,
)

pytestmark = pytest.mark.unit


@pytest.fixture(scope="module")
def deployment():
    return example({MODEL: endpoint_settings(CHECKED)})


def objects(statements, verb):
    """Keys of the bucket's objects that statements allow a verb on."""
    found = [item for item in statements if any(verb in action for action in item["Action"])]
    return {arn.partition(":::")[2].partition("/")[2] for item in found for arn in item["Resource"]}


def test_endpoint_without_a_check_has_no_resource_of_it():
    assert capture_check_resources(example({MODEL: endpoint_settings(CAPTURE)}), IMAGES) == {}


def test_role_reads_its_endpoints_captures_and_writes_its_reports(deployment):
    statements = capture_check_statements(deployment)
    (target,) = deployment.targets
    assert objects(statements, "s3:GetObject") == {
        "captures/cloud-example/*",
        f"networks/{target.network_keys['float']}/*",
        capture_check_source(deployment),
    }
    assert objects(statements, "s3:PutObject") == {"capture-reports/cloud-example/*"}
    (metrics,) = (item for item in statements if item["Sid"] == "PublishCaptureMetrics")
    assert metrics["Condition"] == {
        "StringEquals": {"cloudwatch:namespace": names.CAPTURE_NAMESPACE}
    }


def test_builds_of_branches_neither_read_captures_nor_write_what_the_check_runs(deployment):
    environment: EnvironmentSpec = deployment.environment
    statements = project_statements(environment, CPU)
    touched = objects(statements, "s3:GetObject") | objects(statements, "s3:PutObject")
    assert not [key for key in touched if key.startswith(("capture", "*"))]


def test_schedule_starts_its_own_project_and_nothing_else(deployment):
    found = capture_check_resources(deployment, IMAGES)
    schedule = found["CaptureCheckSchedule"]["Properties"]
    (policy,) = found["CaptureCheckScheduleRole"]["Properties"]["Policies"]
    (statement,) = policy["PolicyDocument"]["Statement"]
    project = found["CaptureCheckProject"]["Properties"]
    assert statement["Action"] == ["codebuild:StartBuild"]
    assert statement["Resource"] == [schedule["Target"]["Arn"]]
    assert schedule["Target"]["Arn"].endswith(f":project/{project['Name']}")
    assert schedule["ScheduleExpression"] == "rate(1 day)"
    variables = {
        item["Name"]: item["Value"] for item in project["Environment"]["EnvironmentVariables"]
    }
    assert variables["ROUNDHOUSE_HOURS"] == "24" and variables["ROUNDHOUSE_SAMPLE"] == "200"


def test_other_engines_have_another_source(deployment):
    other = with_engine_key(deployment, "0" * 20)
    before, after = capture_check_source(deployment), capture_check_source(other)
    assert before != after
    assert {key.rpartition("/")[0] for key in (before, after)} == {"capture-checks/cloud-example"}
