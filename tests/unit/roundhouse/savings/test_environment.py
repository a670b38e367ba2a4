"""What runs against the files: counts by live endpoints, by the files, and by a demand."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError, NoCredentialsError

from onboarding.deployment import Variant
from onboarding.lock import ServedCapacity
from roundhouse.errors import AwsError, NotReadyError, RoundhouseError, UsageError
from roundhouse.paths import Paths
from roundhouse.savings.environment import (
    build_cost,
    investments,
    proposed_fleet,
    require_a_saving,
    savings_lines,
    savings_table,
)
from tests.unit.roundhouse.engines import copied_tree, entry_for, local_deployments, with_entry
from tests.unit.roundhouse.status.test_live import Account

pytestmark = pytest.mark.unit


@pytest.fixture
def tree(tmp_path):
    return copied_tree(tmp_path / "tree")


@pytest.fixture
def deployment(tree):
    return next(item for item in local_deployments(tree) if not item.multi_model)


def session(tree, *deployments, clients=None):
    return SimpleNamespace(
        paths=Paths(code=tree, tree=tree, build=tree / "build"),
        environment=deployments[0].environment,
        clients=Account(deployments[0]) if clients is None else clients,
        deployments=lambda: deployments,
    )


def measure(deployment, rate):
    """Return a deployment whose engine was measured behind its endpoint."""
    (variant,) = deployment.variants
    capacity = ServedCapacity(
        requests_per_second=rate, slo_ms=deployment.endpoint.latency_slo_ms,
        instance_type=variant.instance_type.name, server=deployment.server,
        endpoint=deployment.name, date="2026-11-23", tool="a test",
    )  # fmt: skip

    def change(target):
        entry = entry_for(deployment, target)
        return with_entry(
            target, entry.model_copy(update={"capacity": {capacity.instance_type: capacity}})
        )

    return deployment.with_targets(change)


def test_live_instances_are_the_present_fleet(tree, deployment):
    account = Account(deployment)
    account.instances = 3
    (found,) = investments(session(tree, deployment, clients=account), None)
    assert [group.count for group in found.present.groups] == [3]
    assert [group.count for group in found.proposed.groups] == [1]
    assert found.build_usd is None, "no build of this model was timed"


def test_endpoint_that_is_not_deployed_has_no_present_fleet(tree, deployment):
    account = Account(deployment)
    account.exists = False
    found = investments(session(tree, deployment, clients=account), None)
    require_a_saving(found, "us-east-1")
    assert found[0].present is None and "nothing runs" in savings_lines(found)[0]
    _, runs, *_ = savings_table(found).columns
    assert list(runs.cells) == ["not deployed"]


def test_endpoint_that_cannot_be_read_is_unknown(tree, deployment):
    def refuse(EndpointName):
        refusal = {"Code": "AccessDeniedException", "Message": "not authorized"}
        raise ClientError({"Error": refusal}, "DescribeEndpoint")

    account = Account(deployment)
    account.describe_endpoint = refuse
    found = investments(session(tree, deployment, clients=account), None)
    assert "not known" in savings_lines(found)[0] and "nothing runs" not in savings_lines(found)[0]
    _, runs, *_ = savings_table(found).columns
    assert list(runs.cells) == ["unknown"]
    with pytest.raises(NotReadyError, match=r"^No saving is known\. Endpoint local-.*AccessDenied"):
        require_a_saving(found, "us-east-1")


def test_refuses_an_account_that_is_not_reached(tree, deployment):
    def refuse(EndpointName):
        raise NoCredentialsError

    account = Account(deployment)
    account.describe_endpoint = refuse
    with pytest.raises(AwsError, match="no AWS credentials were found; set AWS_PROFILE"):
        investments(session(tree, deployment, clients=account), None)


def test_refuses_savings_without_any_price(tree, deployment):
    account = Account(deployment)
    account.instance_type = "ml.new.large"
    found = investments(session(tree, deployment, clients=account), None)
    with pytest.raises(RoundhouseError, match=r"no price of .*ml\.new\.large \(`roundhouse"):
        require_a_saving(found, "us-east-1")


def test_refuses_savings_of_a_demand_that_nothing_was_measured_for(tree, deployment):
    found = investments(session(tree, deployment), 5.0)
    with pytest.raises(RoundhouseError, match="the demand are not known: no capacity was"):
        require_a_saving(found, "us-east-1")


def test_demand_is_sized_by_what_one_instance_served(deployment):
    fleet = proposed_fleet(measure(deployment, 10.0), 25.0)
    assert [group.count for group in fleet.groups] == [4], "three, and one that may be lost"
    assert "25 requests/s" in fleet.origin


def test_demand_without_a_measured_capacity_stays_unknown(deployment):
    fleet = proposed_fleet(deployment, 25.0)
    assert [group.count for group in fleet.groups] == [None] and fleet.usd_a_month is None
    assert "no capacity was measured" in fleet.origin


def test_nothing_is_built_where_every_engine_is_in_the_lock(tree, deployment):
    assert build_cost(session(tree, deployment), measure(deployment, 1.0)) == 0


def test_refuses_a_demand_of_several_endpoints(tree):
    several = local_deployments(tree)
    with pytest.raises(UsageError, match="--demand: is of one endpoint"):
        investments(session(tree, *several), 5.0)


def test_variants_are_counted_each(deployment):
    variant: Variant = deployment.own
    fleet = proposed_fleet(deployment, None)
    assert [group.instance_type for group in fleet.groups] == [variant.instance_type.name]
