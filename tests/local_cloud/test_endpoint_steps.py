"""Changes of endpoints that AWS takes in several updates only, deployed while requests come in."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roundhouse.deploy.stacks import deployed_templates
from stacks.endpoint.change import with_held_resources
from tests.local_cloud.load import steady_load
from tests.local_cloud.tiny_session import (
    Caller,
    deploy_all,
    session_at,
    sound_network,
)

pytestmark = pytest.mark.local_cloud

ENDPOINT, STACK = "local-tiny", "roundhouse-local-endpoint-tiny"
SCALED = "{{instance_type: {}, scaling: {{min: 1, max: 2}}}}"
SMALL, LARGE = (SCALED.format(f"ml.c7i.{size}") for size in ("large", "xlarge"))


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    # The canaries' minutes are not what these tests are about.
    with session_at(tmp_path_factory.mktemp("steps"), seconds_per_minute="0.1") as tiny:
        tiny.write_model(sound_network(), endpoint=SMALL)
        deploy_all(tiny.start())
        yield tiny


@pytest.fixture
def caller(session):
    return Caller(session.clients)


def printed_text(session):
    return session.report.console.file.getvalue()


def variants(session):
    shown = session.clients("sagemaker").describe_endpoint(EndpointName=ENDPOINT)
    assert shown["EndpointStatus"] == "InService"
    config = session.clients("sagemaker").describe_endpoint_config(
        EndpointConfigName=shown["EndpointConfigName"]
    )
    return {
        target["VariantName"]: target["InstanceType"] for target in config["ProductionVariants"]
    }


def capacities(session):
    found = session.clients("application-autoscaling").describe_scalable_targets(
        ServiceNamespace="sagemaker"
    )["ScalableTargets"]
    return {
        target["ResourceId"].rpartition("/")[2]: (target["MinCapacity"], target["MaxCapacity"])
        for target in found
    }


def holds_scaling_back(session):
    return with_held_resources(deployed_templates(session, [STACK])[STACK]) is not None


def broken_off_before_the_last(session):
    """The session, whose user gives up when the last deploy begins."""

    def run(command, on_line=None):
        if "deploy" in command.argv and "**" in command.argv:
            raise KeyboardInterrupt
        return session.run(command, on_line)

    return replace(session, run=run)


def test_instance_type_of_a_scaled_endpoint_changes_while_it_answers(tiny, session, caller):
    actual = (variants(session), capacities(session))
    assert actual == ({"AllTraffic": "ml.c7i.large"}, {"AllTraffic": (1, 2)})
    tiny.write_model(sound_network(), endpoint=LARGE)
    with steady_load(caller, ENDPOINT) as load:
        done = deploy_all(session)
    assert load.failures == [] and load.answers
    assert "tiny takes 2 updates: the instance type of variant AllTraffic changes" in printed_text(
        session
    )
    actual = (variants(session), capacities(session))
    assert actual == ({"AllTraffic": "ml.c7i.xlarge"}, {"AllTraffic": (1, 2)})
    assert "local/Endpoint-tiny" in done.deployed.changed
    assert not holds_scaling_back(session)


def test_deploy_that_was_broken_off_between_the_updates_is_completed_by_the_next(
    tiny, session, caller
):
    tiny.write_model(sound_network(), endpoint=SMALL)
    with steady_load(caller, ENDPOINT) as load:
        with pytest.raises(KeyboardInterrupt):
            deploy_all(broken_off_before_the_last(session))
        assert (variants(session), capacities(session)) == ({"AllTraffic": "ml.c7i.xlarge"}, {})
        assert holds_scaling_back(session)
        deploy_all(tiny.start())
    assert load.failures == []
    actual = (variants(session), capacities(session))
    assert actual == ({"AllTraffic": "ml.c7i.large"}, {"AllTraffic": (1, 2)})
    assert not holds_scaling_back(session)
