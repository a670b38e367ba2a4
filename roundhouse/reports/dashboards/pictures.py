"""Every dashboard of an environment, with the synthetic day that it is drawn from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from onboarding import names
from onboarding.deployment import Deployment
from roundhouse.reports.dashboards.body import Body, selected_body
from roundhouse.reports.dashboards.example_locks import with_example_locks
from roundhouse.reports.dashboards.page import Shown, page, size
from roundhouse.reports.dashboards.synthetic import MINUTES, SyntheticMetrics
from stacks.access import arns
from stacks.alarms.properties import alarms
from stacks.dashboards.endpoint import dashboard_name, endpoint_dashboard_body
from stacks.dashboards.environment import dashboard_body

END = datetime(2026, 11, 20, 17, tzinfo=UTC).timestamp()
NOTES = (
    "24 hours of synthetic metrics up to 17:00: a wave of load, a rollout at 10:30, a spike "
    "from 15:45 on.",
)
EXAMPLE = "Engines that are not built yet have an example's numbers."


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One page to photograph; `digest` tells whether the dashboard has changed since."""

    name: str
    html: str
    size: tuple[int, int]
    digest: str


def pictures(
    deployments: Sequence[Deployment], selected: str, endpoints: Sequence[str]
) -> list[Picture]:
    """Return the environment's dashboard with one endpoint selected, and those of `endpoints`."""
    built = [with_example_locks(deployment) for deployment in deployments]
    environment = built[0].environment
    shown = Shown(
        metrics=SyntheticMetrics.of(built, END - MINUTES * 60),
        end=END,
        alarms={
            arns.arn(environment, "cloudwatch", f"alarm:{alarm['AlarmName']}"): alarm
            for deployment in built
            for alarm in alarms(deployment).values()
        },
        title=f"roundhouse-{environment.name}",
        selected=names.endpoint_name(environment, selected),
        notes=NOTES if built == list(deployments) else (*NOTES, EXAMPLE),
    )
    body = selected_body(dashboard_body(built), shown.selected)
    results = [_picture("dashboard-environment", body, shown)]
    for deployment in built:
        if deployment.name in endpoints:
            endpoint = deployment.endpoint.model_copy(update={"dashboard": True})
            drawn = dataclasses.replace(deployment, endpoint=endpoint)
            own = dataclasses.replace(shown, title=dashboard_name(drawn), selected=None)
            body = selected_body(endpoint_dashboard_body(drawn))
            results.append(_picture(f"dashboard-{deployment.name}", body, own))
    return results


def digest(body: Body) -> str:
    """Return the digest of a dashboard's body as it is opened."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _picture(name: str, body: Body, shown: Shown) -> Picture:
    return Picture(name=name, html=page(body, shown), size=size(body), digest=digest(body))
