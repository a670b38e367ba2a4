"""A first deployment of the foundation that failed can simply be repeated."""

from __future__ import annotations

import json

import pytest

from stacks.images import DOCKERFILES
from tests.synth.assembly import synthesized
from tests.synth.deployments import environment

pytestmark = pytest.mark.local_cloud

STACK = "roundhouse-local-first-foundation"


@pytest.fixture(scope="module")
def resources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("foundation")
    template = synthesized(folder, environment("local"), ())["Foundation"].template
    return template["Resources"]


def with_a_refused_model(resources):
    """The foundation, and a model without a role, which SageMaker refuses once the rest is
    there.
    """
    refused = {"Type": "AWS::SageMaker::Model", "DependsOn": sorted(resources), "Properties": {}}
    return {**resources, "Refused": refused}


def repositories_of_roundhouse(cloud):
    """Other tests of the same account may have made repositories of their own."""
    names = [
        repository["repositoryName"]
        for repository in cloud.client("ecr").describe_repositories()["repositories"]
    ]
    return [name for name in names if name.startswith("roundhouse")]


def test_failed_first_deployment_leaves_nothing_and_can_be_repeated(cloud, resources):
    status, reason = cloud.deploy(STACK, with_a_refused_model(resources))
    assert status == "ROLLBACK_COMPLETE", reason
    names = json.dumps(cloud.client("s3").list_buckets()["Buckets"], default=str)
    assert "roundhouse-local" not in names
    assert repositories_of_roundhouse(cloud) == []
    # The cdk command line deletes a stack in this state before it creates it again.
    cloud.destroy(STACK)
    status, reason = cloud.deploy(STACK, resources)
    assert status == "CREATE_COMPLETE", reason
    cloud.destroy(STACK)
    assert len(repositories_of_roundhouse(cloud)) == len(DOCKERFILES)
