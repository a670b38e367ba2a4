"""Plans of one environment, whatever words they hold."""

from __future__ import annotations

from roundhouse.gitops.plan_document import (
    CostChange,
    EndpointChange,
    EnvironmentPlan,
    MonthlyCost,
    PermissionChange,
    Plan,
    PropertyChange,
    ResourceChange,
    Side,
)

COST = CostChange(
    before=MonthlyCost(least=100.0, most=400.0),
    after=MonthlyCost(least=100.0, most=500.0),
)


def endpoint(name="m", cost=COST, text="text"):
    changes = (PropertyChange(path="A", before=text, after="b"),)
    return EndpointChange(
        name=name,
        kind="changed",
        outage=False,
        resources=(
            ResourceChange(id="A", type="AWS::IAM::Role", change="in-place", properties=changes),
        ),
        permissions=PermissionChange(added=(f"Role: {text}",)),
        rollout=None,
        cost=cost,
        faults=(),
    )


def plan(*endpoints, ref="main"):
    environment = EnvironmentPlan(
        environment="dev",
        id="0" * 12,
        endpoints=endpoints,
        engines=(),
        unchanged_endpoints=3,
        prices_date="2026-01-01",
    )
    side = Side(ref=ref, commit="a" * 40)
    return Plan(base=side, head=side, data_only=True, environments=(environment,))
