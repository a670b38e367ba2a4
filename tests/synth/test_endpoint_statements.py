"""What an endpoint's role may read, whatever the number of its models."""

from __future__ import annotations

import dataclasses
import json

import pytest

from onboarding.deployment import Deployment
from stacks.endpoint_statements import MOST_NAMED_ENGINES, endpoint_statements
from tests.synth.deployments import of_targets, one

INLINE_CHARACTERS = 10_240
"""IAM's limit on a role's own policies together; white space does not count."""


def of_engines(count: int) -> Deployment:
    shared = one("dev", "text-shared")
    keys = [f"{number:020x}" for number in range(count)]
    return of_targets(shared, tuple(dataclasses.replace(shared.targets[0], engine_key=key) for key in keys))


def read(deployment: Deployment) -> list[str]:
    (statement,) = [each for each in endpoint_statements(deployment) if each["Sid"] == "ReadObjects"]
    return [resource.partition(":::")[2].partition("/")[2] for resource in statement["Resource"]]


def test_role_reads_exactly_its_engines():
    assert read(of_engines(3)) == [f"engines/{number:020x}/model.tar.gz" for number in range(3)]
    assert len(read(of_engines(MOST_NAMED_ENGINES))) == MOST_NAMED_ENGINES


def test_role_of_more_engines_than_fit_reads_all_engines():
    assert read(of_engines(MOST_NAMED_ENGINES + 1)) == ["engines/*"]


@pytest.mark.parametrize("count", [1, MOST_NAMED_ENGINES, MOST_NAMED_ENGINES + 1, 500])
def test_role_s_policy_fits(count):
    policy = {"Version": "2012-10-17", "Statement": list(endpoint_statements(of_engines(count)))}
    assert len(json.dumps(policy, separators=(",", ":"))) < INLINE_CHARACTERS * 0.75  # a VPC and a queue take some, too
