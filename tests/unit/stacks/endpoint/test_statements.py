"""What an endpoint's role may do, whatever the number of its models, and whatever version is on its
way.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from onboarding.deployment import Deployment
from onboarding.environment_spec import NetworkSpec
from onboarding.hosting_spec import AsynchronousSpec, DataCaptureSpec
from stacks.access.policies import Statement
from stacks.endpoint.statements import (
    MOST_NAMED_ENGINES,
    MOST_NAMED_OF_A_VERSION,
    endpoint_statements,
    version_policy,
    version_statements,
)
from stacks.endpoint.template import endpoint_template
from tests.synth.deployments import (
    of_targets,
    one,
    with_endpoint,
    with_engine_key,
    with_fields,
    with_scaling,
    with_server,
)
from tests.synth.endpoint_cases import (
    BESIDE,
    IMAGES,
    MODEL,
    beside,
    example,
    of_type,
    properties,
    statements,
    template,
)
from tests.synth.scaled import with_variant

INLINE_CHARACTERS = 10_240
"""IAM's limit on a role's own policies together, those beside it too; white space does not count.
"""
OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
POLICY = "AWS::IAM::Policy"


def of_engines(count: int, deployment: Deployment = SHARED) -> Deployment:
    keys = [f"{number:020x}" for number in range(count)]
    return of_targets(
        deployment,
        tuple(dataclasses.replace(deployment.targets[0], engine_key=key) for key in keys),
    )


def largest(deployment: Deployment) -> Deployment:
    """With the largest network, the longest names, a queue, captures, and every alarm that
    SageMaker watches.
    """
    network = NetworkSpec(
        vpc_id="vpc-" + "0" * 17,
        subnet_ids=tuple(f"subnet-{number:017x}" for number in range(16)),
        security_group_ids=tuple(f"sg-{number:017x}" for number in range(5)),
    )
    fields = {"name": "e" * 16, "region": "us-gov-west-1", "network": network}
    environment = deployment.environment.model_copy(update=fields)
    several = with_fields(deployment, name="m" * 46, environment=environment)
    if deployment.multi_model:
        return with_endpoint(several, data_capture=DataCaptureSpec(percent=5))
    queue = AsynchronousSpec(notify=True)
    several = with_endpoint(several, data_capture=DataCaptureSpec(percent=5), asynchronous=queue)
    for number in range(9):
        several = with_variant(several, f"{number}" * 46)
    return several


def read(found: tuple[Statement, ...], sid: str = "ReadObjects") -> list[str]:
    (statement,) = [item for item in found if item["Sid"] == sid]
    return [resource.partition(":::")[2].partition("/")[2] for resource in statement["Resource"]]


def characters(found: tuple[Statement, ...]) -> int:
    return len(
        json.dumps({"Version": "2012-10-17", "Statement": list(found)}, separators=(",", ":"))
    )


def test_role_reads_exactly_its_engines():
    assert read(endpoint_statements(of_engines(3))) == [
        f"engines/{number:020x}/model.tar.gz" for number in range(3)
    ]
    assert len(read(endpoint_statements(of_engines(MOST_NAMED_ENGINES)))) == MOST_NAMED_ENGINES
    own = of_engines(MOST_NAMED_OF_A_VERSION, OWN)
    assert len(read(version_statements(own), "ReadEngines")) == MOST_NAMED_OF_A_VERSION


def test_role_of_more_engines_than_fit_reads_all_engines():
    assert read(endpoint_statements(of_engines(MOST_NAMED_ENGINES + 1))) == ["engines/*"]
    own = of_engines(MOST_NAMED_OF_A_VERSION + 1, OWN)
    assert read(version_statements(own), "ReadEngines") == ["engines/*"]


@pytest.mark.parametrize("count", [1, MOST_NAMED_ENGINES, MOST_NAMED_ENGINES + 1, 500])
@pytest.mark.parametrize("deployment", [SHARED, OWN], ids=["multi-model", "one model"])
def test_policies_of_a_role_and_of_two_versions_fit(deployment, count):
    several = largest(of_engines(count, deployment))
    together = characters(endpoint_statements(several)) + 2 * characters(
        version_statements(several)
    )
    assert together <= INLINE_CHARACTERS


# --- versions


def test_old_version_keeps_its_archives_until_the_new_one_has_taken_over():
    """CloudFormation deletes what has another logical id after the endpoint's update, and changes
    what has the same before it.
    """
    before, after = (
        endpoint_template(with_engine_key(OWN, key), IMAGES) for key in ("a" * 20, "b" * 20)
    )
    old, new = (of_type(entry, POLICY) for entry in (before, after))
    assert not old.keys() & new.keys()
    assert ["a" * 20 in str(old), "a" * 20 in str(new), "b" * 20 in str(new)] == [True, False, True]
    assert properties(before, "Role") == properties(after, "Role")
    names = [
        properties(element, next(iter(of_type(element, POLICY))))["PolicyName"]
        for element in (before, after)
    ]
    assert names[0] != names[1]


def test_old_version_keeps_its_image_where_the_server_changes():
    old, new = (version_policy(with_server(OWN, server)) for server in ("triton", "python"))
    assert not old.keys() & new.keys()
    assert "/triton" in str(old)
    assert "/python-server-gpu" in str(new)


def test_models_wait_for_what_their_instances_need():
    found = template({BESIDE: beside("{joins: example}")})
    (policy,) = of_type(found, POLICY)
    models = [
        resource
        for resource in found["Resources"].values()
        if resource["Type"] == "AWS::SageMaker::Model"
    ]
    assert len(models) == 2 and all(model["DependsOn"] == [policy] for model in models)


def test_same_version_has_the_same_policy_whatever_else_changes():
    other = with_scaling(with_endpoint(OWN, rollout="linear", latency_slo_ms=20.0), max=9)
    assert version_policy(OWN) == version_policy(other)
    assert version_policy(of_engines(2)) == version_policy(
        of_engines(3)
    )  # several models: no rollout, and no version


# --- what SageMaker does in the role's name


def test_role_sees_exactly_the_alarms_that_take_a_version_back():
    found = template({MODEL: {}, BESIDE: beside("{joins: example}")})
    watched = properties(found, "Endpoint")["DeploymentConfig"]["AutoRollbackConfiguration"][
        "Alarms"
    ]
    looks = statements(found)["LookAtAlarms"]
    assert looks["Action"] == ["cloudwatch:DescribeAlarms"] and len(watched) >= 4
    assert [arn.rpartition(":alarm:")[2] for arn in looks["Resource"]] == [
        alarm["AlarmName"] for alarm in watched
    ]


def test_log_group_is_named_as_iam_knows_it():
    (group, streams) = statements(template({}))["WriteLogs"]["Resource"]
    assert group.endswith(":log-group:/aws/sagemaker/Endpoints/cloud-example")
    assert streams == f"{group}:*"


def test_deployment_of_the_tests_is_whole():
    assert {"PullImage", "ReadEngines", "LogInToRegistry"} <= statements(
        endpoint_template(example({}), IMAGES)
    ).keys()
