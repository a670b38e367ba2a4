"""Changes that a person makes by hand are found; what scaling does by itself is not."""

from __future__ import annotations

import pytest

from roundhouse.deploy.stacks import environment_templates
from roundhouse.gitops.drift import environment_drift
from roundhouse.gitops.endpoint_facts import CONFIG, resources_of
from tests.local_cloud.account import MOMENT_SECONDS, until
from tests.local_cloud.tiny_session import deploy_all, session_at, sound_network

pytestmark = pytest.mark.local_cloud

SCHEDULE = '[{schedule: "cron(0 7 1 1 ? 2090)", min: 2}]'
ENDPOINT = "{instance_type: ml.c7i.large, latency_slo_ms: 5000, " + (
    f"scaling: {{min: 1, max: 3, schedule: {SCHEDULE}}}}}"
)
OTHER = "roundhouse-local-endpoint-other"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("session")) as tiny:
        session = tiny.start()
        tiny.write_model(sound_network(), endpoint=ENDPOINT)
        tiny.write_like("other", ENDPOINT, serving="{server: python}")
        deploy_all(session)
        yield tiny


def differences(session):
    """What differs, by part and name."""
    found = environment_drift(session, environment_templates(session))
    return {(item.endpoint, item.what): item for item in found}


def scalable_target(endpoint):
    return {
        "ServiceNamespace": "sagemaker",
        "ResourceId": f"endpoint/local-{endpoint}/variant/AllTraffic",
        "ScalableDimension": "sagemaker:variant:DesiredInstanceCount",
    }


def settle(session, endpoint):
    """Wait until an endpoint can be changed."""
    describe = session.clients("sagemaker").describe_endpoint
    assert until(
        lambda: describe(EndpointName=endpoint)["EndpointStatus"] == "InService", MOMENT_SECONDS
    )


def test_deployment_and_what_scaling_and_schedules_change_have_no_drift(session):
    assert differences(session) == {}
    session.clients("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 1}],
    )
    session.clients("application-autoscaling").register_scalable_target(
        **scalable_target("tiny"), MinCapacity=2, MaxCapacity=3
    )
    assert differences(session) == {}


def change_by_hand(session):
    """Change one thing of each kind that is compared."""
    names = ("application-autoscaling", "sagemaker", "cloudformation")
    scaling, sagemaker, stacks = map(session.clients, names)
    state = {"DynamicScalingInSuspended": True, "DynamicScalingOutSuspended": False,
             "ScheduledScalingSuspended": False}  # fmt: skip
    scaling.register_scalable_target(
        **scalable_target("tiny"), MinCapacity=1, MaxCapacity=2, SuspendedState=state
    )
    scaling.deregister_scalable_target(**scalable_target("other"))
    settle(session, "local-tiny")
    sagemaker.update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredWeight": 0.5}],
    )
    (config,) = resources_of(environment_templates(session)[OTHER], CONFIG)
    live = sagemaker.describe_endpoint_config(
        EndpointConfigName=config["Properties"]["EndpointConfigName"]
    )
    sagemaker.create_endpoint_config(
        EndpointConfigName="by-hand", ProductionVariants=live["ProductionVariants"]
    )
    settle(session, "local-other")
    sagemaker.update_endpoint(EndpointName="local-other", EndpointConfigName="by-hand")
    settle(session, "local-other")
    for stack in ("roundhouse-local-foundation", OTHER):
        stacks.update_termination_protection(StackName=stack, EnableTerminationProtection=False)


def test_every_kind_of_change_by_hand_is_found_and_nothing_else(session):
    change_by_hand(session)
    found = differences(session)
    assert found.keys() == {
        ("tiny", "bounds of AllTraffic"),
        ("tiny", "suspended scaling of AllTraffic"),
        ("tiny", "weight of AllTraffic"),
        ("other", "scaling of AllTraffic"),
        ("other", "endpoint config"),
        ("foundation", "termination protection"),
        ("other", "termination protection"),
    }
    assert all(item.deployed != item.live for item in found.values())


def test_what_is_gone_or_no_file_names_is_found(tiny, session):
    session.clients("sagemaker").delete_endpoint(EndpointName="local-tiny")
    assert until(lambda: ("tiny", "endpoint") in differences(session), MOMENT_SECONDS)
    stacks = session.clients("cloudformation")
    stacks.delete_stack(StackName=OTHER)
    stacks.get_waiter("stack_delete_complete").wait(StackName=OTHER, WaiterConfig={"Delay": 1})
    assert differences(session)["other", "stack"].live is None
    (tiny.paths.tree / "models" / "tiny.yaml").unlink()
    assert differences(session)["tiny", "stack"].live == "no file names it"
