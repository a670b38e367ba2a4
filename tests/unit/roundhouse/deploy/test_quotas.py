"""A deployment is refused before anything changes where a quota cannot hold it."""

from __future__ import annotations

import pytest

from onboarding.aws_limits import endpoint_quota, training_quota
from roundhouse.deploy import deployment
from roundhouse.deploy.quotas import read_quotas
from roundhouse.errors import DeployFailedError
from tests.unit.roundhouse.deploy.whole_session import refusal, whole_session

pytestmark = pytest.mark.unit

G5 = endpoint_quota("ml.g5.xlarge")


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path)


def deploy(session):
    deployment.deploy(session, deployment.DeployOptions(yes=True))
    return session.report.console.file.getvalue()


def test_refuses_before_anything_is_built_or_deployed(session):
    session.clients.quotas = {"Another": 5, G5: 0}
    with pytest.raises(DeployFailedError, match=f"Refused before deploying: the quota '{G5}' is 0"):
        deploy(session)
    assert session.clients.did == []


def test_quota_that_is_not_known_is_named_and_stops_nothing(session):
    output = " ".join(deploy(session).split())
    assert "Service Quotas names no quota of these, so none is checked: " in output
    assert G5 in output and session.clients.did[-1] == "deploy **"


def test_quotas_that_may_not_be_read_are_named_and_stop_nothing(session):
    def deny(ServiceCode):
        raise refusal("AccessDeniedException")

    session.clients.list_service_quotas = deny
    output = " ".join(deploy(session).split())
    assert "Quotas are not known, and the deployment goes on: Reading the quotas" in output
    assert "AccessDeniedException" in output and session.clients.did[-1] == "deploy **"


def test_instances_of_other_endpoints_count(session):
    variant = {"VariantName": "AllTraffic", "CurrentInstanceCount": 2, "DesiredInstanceCount": 3}
    config = {"ProductionVariants": [{"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge"}]}
    other = {"EndpointConfigName": "c", "ProductionVariants": [variant]}
    session.clients.endpoints["other"] = other, config
    session.clients.quotas = {G5: 3}
    with pytest.raises(DeployFailedError, match=r"needs \d+ instances \(3 run now, "):
        deploy(session)


def test_own_value_of_a_quota_is_taken_before_the_default(session):
    wanted = {G5, training_quota("ml.g6.xlarge")}
    session.clients.quotas, session.clients.defaults = {G5: 7}, dict.fromkeys(wanted, 1)
    values = {name: quota.value for name, quota in read_quotas(session.clients, wanted).items()}
    assert values == {G5: 7, training_quota("ml.g6.xlarge"): 1}
