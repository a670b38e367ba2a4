"""Changes that a person makes by hand are found; what scaling does by itself is not."""

from __future__ import annotations

import pytest

from onboarding.names import artifact_bucket
from roundhouse.deploy.stacks import environment_templates
from roundhouse.gitops.drift.environment import environment_drift
from tests.local_cloud.account import MOMENT_SECONDS, until
from tests.local_cloud.hand_made_changes import CHANGES, Account, scalable_target
from tests.local_cloud.tiny_session import deploy_all, lock_entry, session_at, sound_network

pytestmark = pytest.mark.local_cloud

SCHEDULE = '[{schedule: "cron(0 7 1 1 ? 2090)", min: 2}]'
SCALING = f"scaling: {{min: 1, max: 3, schedule: {SCHEDULE}}}"
ENDPOINT = "{instance_type: ml.c7i.large, latency_slo_ms: 5000, %s, " + SCALING + "}"
KINDS = 23


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    with session_at(tmp_path_factory.mktemp("session")) as tiny:
        session = tiny.start()
        tiny.write_model(sound_network(), endpoint=ENDPOINT % "dashboard: true")
        tiny.write_like(
            "other",
            ENDPOINT % "data_capture: {percent: 20}, metrics: {detailed: true}",
            serving="{server: python}",
        )
        deploy_all(session)
        yield tiny


@pytest.fixture
def session(tiny):
    return tiny.start()


def differences(session):
    """What differs, by part and name."""
    found = environment_drift(session, environment_templates(session))
    return {(item.endpoint, item.what): item for item in found}


def test_deployment_has_no_drift(session):
    assert differences(session) == {}


def test_what_scaling_and_schedules_change_is_no_drift(session):
    session.clients("sagemaker").update_endpoint_weights_and_capacities(
        EndpointName="local-tiny",
        DesiredWeightsAndCapacities=[{"VariantName": "AllTraffic", "DesiredInstanceCount": 1}],
    )
    session.clients("application-autoscaling").register_scalable_target(
        **scalable_target("tiny"), MinCapacity=2, MaxCapacity=3
    )
    assert differences(session) == {}


def test_every_kind_of_change_by_hand_is_found_and_nothing_else(tiny, session):
    account = Account(session, environment_templates(session), lock_entry(tiny))
    expected = [(item.part, item.what) for change in CHANGES for item in change(account)]
    found = differences(session)
    assert set(expected) - found.keys() == set()
    assert found.keys() - set(expected) == set()
    assert len(expected) >= KINDS
    assert all(item.deployed != item.live for item in found.values())


def test_what_is_gone_or_no_file_names_is_found(tiny, session):
    path = lock_entry(tiny).archive.path
    session.clients("s3").delete_object(Bucket=artifact_bucket(session.environment), Key=path)
    session.clients("sagemaker").delete_endpoint(EndpointName="local-tiny")
    assert until(lambda: ("tiny", "endpoint") in differences(session), MOMENT_SECONDS)
    assert differences(session)["tiny", f"bytes of {path}"].live is None
    stacks, name = session.clients("cloudformation"), "roundhouse-local-endpoint-other"
    stacks.delete_stack(StackName=name)
    stacks.get_waiter("stack_delete_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
    assert differences(session)["other", "stack"].live is None
    (tiny.paths.tree / "models" / "tiny.yaml").unlink()
    assert differences(session)["tiny", "stack"].live == "no file names it"
