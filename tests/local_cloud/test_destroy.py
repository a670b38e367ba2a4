"""What is destroyed is gone, and comes back without a build; everything real."""

from __future__ import annotations

import pytest
from botocore.exceptions import ClientError

from onboarding.names import artifact_bucket
from roundhouse.deploy.destroy import (
    delete_stacks,
    destroy,
    environment_stacks,
    kept_storage,
)
from roundhouse.deploy.stacks import stack_summaries
from roundhouse.errors import RoundhouseError
from tests.local_cloud.tiny_session import deploy_all, session_at, vector

pytestmark = pytest.mark.local_cloud

QUOTA = "ml.c7i.large for endpoint usage"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("session"), seconds_per_minute="0.5") as tiny:
        deploy_all(tiny.start())
        yield tiny


def live_config(session):
    endpoint = session.clients("sagemaker").describe_endpoint(EndpointName="local-tiny")
    return endpoint["EndpointConfigName"]


def test_destroyed_endpoint_is_gone_and_the_next_deployment_builds_nothing(session):
    destroy(session, "tiny")
    with pytest.raises(ClientError, match="Could not find"):
        live_config(session)
    with pytest.raises(RoundhouseError, match="tiny: no such endpoint is deployed in local"):
        destroy(session, "tiny")
    again = deploy_all(session)
    assert (again.built, len(again.deployed.changed)) == ((), 1)
    output = " ".join(session.report.console.file.getvalue().split())
    assert "Service Quotas names no quota of these, so none is checked: " in output
    assert QUOTA in output


def test_destroyed_environment_keeps_engines_and_comes_back_without_a_build(session):
    stacks = environment_stacks(session, builds=True)
    assert [stack.name for stack in stacks] == [
        f"roundhouse-local-{part}"
        for part in ("builds", "endpoint-tiny", "images", "observability")
    ]
    delete_stacks(session, environment_stacks(session, builds=False))
    left = set(stack_summaries(session.clients("cloudformation")))
    assert {"roundhouse-local-foundation", "roundhouse-local-builds"} <= left
    assert not left & {"roundhouse-local-endpoint-tiny", "roundhouse-local-observability"}
    assert next(iter(kept_storage(session.environment))) == (
        f"s3://{artifact_bucket(session.environment)} with every engine"
    )

    delete_stacks(session, environment_stacks(session, builds=True))
    assert environment_stacks(session, builds=True) == ()
    again = deploy_all(session)
    assert (again.built, len(again.deployed.changed)) == ((), 4)
    assert sum(number * number for number in vector(session)) == pytest.approx(1, abs=1e-5)
