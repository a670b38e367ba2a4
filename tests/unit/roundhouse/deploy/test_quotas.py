"""What a deployment needs of the account's quotas; it is refused before anything changes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from onboarding.aws_limits import ENDPOINT_INSTANCES_QUOTA, endpoint_quota, training_quota
from onboarding.platform import instance_types
from roundhouse.deploy import deployment
from roundhouse.deploy.builds.requests import EngineRequest
from roundhouse.deploy.quotas import Need, Quota, deployment_needs, quota_fault, read_quotas
from roundhouse.errors import DeployFailedError
from tests.unit.roundhouse.deploy.whole_session import refusal, whole_session

G5, G6 = endpoint_quota("ml.g5.xlarge"), endpoint_quota("ml.g6.xlarge")


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path)


def fault(need, **values):
    names = {"g5": G5, "g6": G6}
    quotas = {names[key]: Quota(code=f"L-{key}", value=value) for key, value in values.items()}
    return quota_fault(need, quotas, "us-east-1")


def test_fault_names_the_quotas_their_value_the_need_and_the_way_out():
    pooled = Need(quotas=(G5, G6), instances=4, way_out=", or lower `scaling.min`")
    assert fault(pooled, g5=2, g6=1) == (
        f"the quota '{G5}' and '{G6}' is 3 in us-east-1, and this deployment needs 4 instances: "
        "ask for more: `aws service-quotas request-service-quota-increase --service-code sagemaker "
        "--quota-code L-g5 --desired-value 3 --region us-east-1`, or lower `scaling.min`"
    )
    assert fault(pooled, g5=2, g6=2) is None
    assert fault(pooled, g5=0) is None, "the other quota is not known"


def test_endpoints_need_their_first_instances_by_type_and_together_and_builds_one(session):
    file = session.paths.tree / "environments" / "dev.yaml"
    own = "models: {sentence-embedder: {endpoint: {scaling: {min: 2, max: 8}}}}\n"
    file.write_text(f"{file.read_text()}{own}")
    (model,) = [item for item in session.deployments() if item.name == "sentence-embedder"]
    (target,) = model.targets
    other = replace(target, instance_type=instance_types()["ml.g6.xlarge"])
    requests = [EngineRequest(deployment=model, target=item, why="x") for item in (target, other)]
    needs = {need.quotas: need.instances for need in deployment_needs(session, requests)}
    assert needs == {
        (G5,): 3,
        (ENDPOINT_INSTANCES_QUOTA,): 3,
        (training_quota("ml.g6.xlarge"),): 1,
    }


def deploy(session):
    deployment.deploy(session, deployment.DeployOptions(yes=True))
    return " ".join(session.report.console.file.getvalue().split())


def test_refuses_before_anything_is_built_or_deployed(session):
    session.clients.quotas = {"Another": 5, G5: 0}
    with pytest.raises(DeployFailedError, match=f"Refused before deploying: the quota '{G5}' is 0"):
        deploy(session)
    assert session.clients.did == []


def test_quota_that_is_not_known_is_named_and_stops_nothing(session):
    output = deploy(session)
    assert "Service Quotas names no quota of these, so none is checked: " in output
    assert G5 in output and session.clients.did[-1] == "deploy **"


def test_quotas_that_may_not_be_read_are_named_and_stop_nothing(session):
    def deny(ServiceCode):
        raise refusal("AccessDeniedException")

    session.clients.list_service_quotas = deny
    output = deploy(session)
    assert "Quotas are not known, and the deployment goes on: Reading the quotas" in output
    assert "AccessDeniedException" in output and session.clients.did[-1] == "deploy **"


def test_own_value_of_a_quota_is_taken_before_the_default(session):
    session.clients.quotas, session.clients.defaults = {G5: 7}, dict.fromkeys((G5, G6), 1)
    values = {name: quota.value for name, quota in read_quotas(session.clients, {G5, G6}).items()}
    assert values == {G5: 7, G6: 1}
