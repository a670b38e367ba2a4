"""What a deployment needs of the account's quotas; it is refused before anything changes."""

from __future__ import annotations

import pytest

from onboarding.aws_limits import endpoint_quota, training_quota
from roundhouse.deploy import deployment
from roundhouse.deploy.quotas import (
    Fleet,
    Limit,
    Quota,
    endpoint_findings,
    endpoint_limits,
    read_quotas,
    training_findings,
)
from roundhouse.errors import DeployFailedError
from tests.unit.roundhouse.deploy.whole_session import refusal, whole_session

pytestmark = pytest.mark.unit

G5, G6 = "ml.g5.xlarge", "ml.g6.xlarge"


def fleet(endpoint, running=0, count=1, beside=0, most=1, types=(G5,)):
    present = {types[0]: running} if running else {}
    return Fleet(
        endpoint=endpoint,
        instance_types=types,
        running=present,
        count=count,
        beside=beside,
        most=most,
    )


def findings(value, *fleets, types=(G5,), others=0, at_once=1):
    """What is found where the account also runs `others` instances of endpoints of its own."""
    limit = Limit(instance_types=types)
    quotas = [Quota(name=name, code="L-1", value=value) for name in limit.names]
    running = {G5: others + sum(sum(item.running.values()) for item in fleets)}
    return list(
        endpoint_findings(limit, quotas, fleets, running, region="us-east-1", at_once=at_once)
    )


@pytest.mark.parametrize(
    ("needed", "fleets", "others", "at_once"),
    [
        (1, [fleet("new")], 0, 1),
        (4, [fleet("new")], 3, 1),
        (2, [fleet("one"), fleet("two")], 0, 1),
        (2, [fleet("blue-green", running=1, beside=1)], 0, 1),
        (6, [fleet("blue-green", running=3, count=3, beside=3, most=3)], 0, 1),
        (4, [fleet("rolling", running=3, count=3, beside=1, most=3)], 0, 1),
        (3, [fleet("a", running=1, beside=1), fleet("b", running=1, beside=1)], 0, 1),
        (4, [fleet("a", running=1, beside=1), fleet("b", running=1, beside=1)], 0, 2),
        (3, [fleet("grows", running=1, count=2, beside=2, most=2)], 0, 1),
        (5, [fleet("grows", running=1, count=5, beside=1, most=5)], 0, 1),
    ],
)  # fmt: skip
def test_smallest_quota_that_a_deployment_fits(needed, fleets, others, at_once):
    (refusal,) = findings(needed - 1, *fleets, others=others, at_once=at_once)
    assert refusal.is_refusal and f"needs {needed} instance" in refusal.text
    assert f"--quota-code L-1 --desired-value {needed} --region us-east-1" in refusal.text
    enough = findings(needed, *fleets, others=others, at_once=at_once)
    assert not any(finding.is_refusal for finding in enough)


def test_refusal_names_the_quota_its_value_the_need_and_the_way_out():
    (refusal,) = findings(2, fleet("new"), fleet("rolls", running=2, count=2, beside=2, most=2))
    assert refusal.text == (
        "the quota 'ml.g5.xlarge for endpoint usage' is 2 in us-east-1, and this deployment needs "
        "5 instances (2 run now, 1 more start, 2 more run until the rollout ends): ask for more: "
        "`aws service-quotas request-service-quota-increase --service-code sagemaker --quota-code "
        "L-1 --desired-value 5 --region us-east-1`, or lower `scaling.min`"
    )


def test_nothing_is_refused_where_nothing_changes_even_above_the_quota():
    (warning,) = findings(1, fleet("same", running=3, count=None, most=3))
    assert not warning.is_refusal and "need 3 at their scaling maximum" in warning.text


def test_warns_of_a_maximum_and_of_a_rollout_at_the_maximum():
    same = fleet("same", running=1, count=None, most=4)
    (above,) = findings(4, same, others=1)
    assert "need 5 at their scaling maximum: SageMaker refuses what is above" in above.text
    (rollout,) = findings(8, same, others=1)
    assert "enough for the scaling maximum (5), and not for a rollout then (9)" in rollout.text
    assert not above.is_refusal and not rollout.is_refusal
    assert findings(9, same, others=1) == []


def test_pools_may_run_on_any_of_their_types_and_need_all_quotas_together():
    pooled = fleet("pooled", count=3, most=3, types=(G5, G6))
    limits = endpoint_limits([pooled, fleet("alone")])
    assert [limit.instance_types for limit in limits] == [(G5,), (G5, G6), ()]
    assert findings(1, pooled, types=(G5,)) == []
    (refusal,) = findings(1, pooled, fleet("alone"), types=(G5, G6))
    assert "usage' and 'ml.g6.xlarge for endpoint usage' is 2" in refusal.text
    assert "needs 4 instances" in refusal.text
    (total,) = findings(3, pooled, fleet("alone"), types=())
    assert "'Number of instances across active endpoints' is 3" in total.text


@pytest.mark.parametrize(
    ("value", "running", "verdict"), [(0, 0, True), (1, 0, False), (3, 2, False), (4, 2, None)]
)
def test_builds_are_refused_without_a_quota_and_wait_for_one_in_use(value, running, verdict):
    quota = Quota(name="x", code="L-2", value=value)
    result = training_findings(G6, quota, builds=2, running=running, at_once=4, region="us-east-1")
    assert [finding.is_refusal for finding in result] == ([] if verdict is None else [verdict])


QUOTA = endpoint_quota(G5)


@pytest.fixture
def session(tmp_path):
    return whole_session(tmp_path)


def deploy(session):
    deployment.deploy(session, deployment.DeployOptions(yes=True))
    return session.report.console.file.getvalue()


def test_refuses_before_anything_is_built_or_deployed(session):
    session.clients.quotas = {"Another": 5, QUOTA: 0}
    with pytest.raises(
        DeployFailedError, match=f"Refused before deploying: the quota '{QUOTA}' is 0"
    ):
        deploy(session)
    assert session.clients.did == []


def test_quota_that_is_not_known_is_named_and_stops_nothing(session):
    output = " ".join(deploy(session).split())
    assert "Service Quotas names no quota of these, so none is checked: " in output
    assert QUOTA in output and session.clients.did[-1] == "deploy **"


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
    session.clients.quotas = {QUOTA: 3}
    with pytest.raises(DeployFailedError, match=r"needs \d+ instances \(3 run now, "):
        deploy(session)


def test_own_value_of_a_quota_is_taken_before_the_default(session):
    wanted = {QUOTA, training_quota("ml.g6.xlarge")}
    session.clients.quotas, session.clients.defaults = {QUOTA: 7}, dict.fromkeys(wanted, 1)
    values = {name: quota.value for name, quota in read_quotas(session.clients, wanted).items()}
    assert values == {QUOTA: 7, training_quota("ml.g6.xlarge"): 1}
