"""Every dashboard of an environment, with the synthetic day that it is drawn from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

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
    notes = NOTES if built == list(deployments) else (*NOTES, EXAMPLE)
    metrics = SyntheticMetrics.of(built, END - MINUTES * 60)
    environment = built[0].environment
    found = [_environment(built, metrics, notes, names.endpoint_name(environment, selected))]
    return [
        *found,
        *(
            _endpoint(deployment, metrics, notes)
            for deployment in built
            if deployment.name in endpoints
        ),
    ]


def digest(body: Body) -> str:
    """Of a dashboard's body as it is opened."""
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _environment(
    deployments: Sequence[Deployment],
    metrics: SyntheticMetrics,
    notes: Sequence[str],
    selected: str,
) -> Picture:
    body = selected_body(dashboard_body(deployments), selected)
    title = f"roundhouse-{deployments[0].environment.name}"
    return _picture(
        "dashboard-environment", body, _page_data(deployments, metrics, title, notes, selected)
    )


def _endpoint(deployment: Deployment, metrics: SyntheticMetrics, notes: Sequence[str]) -> Picture:
    wanted = dataclasses.replace(
        deployment, endpoint=deployment.endpoint.model_copy(update={"dashboard": True})
    )
    shown = _page_data([wanted], metrics, dashboard_name(wanted), notes, None)
    return _picture(
        f"dashboard-{deployment.name}", selected_body(endpoint_dashboard_body(wanted)), shown
    )


def _page_data(
    deployments: Sequence[Deployment],
    metrics: SyntheticMetrics,
    title: str,
    notes: Sequence[str],
    selected: str | None,
) -> Shown:
    return Shown(
        metrics=metrics,
        end=END,
        alarms=_alarms(deployments),
        title=title,
        selected=selected,
        notes=notes,
    )


def _alarms(deployments: Sequence[Deployment]) -> Mapping[str, Mapping[str, Any]]:
    found = [
        (deployment, alarm) for deployment in deployments for alarm in alarms(deployment).values()
    ]
    return {
        arns.arn(item.environment, "cloudwatch", f"alarm:{alarm['AlarmName']}"): alarm
        for item, alarm in found
    }


def _picture(name: str, body: Body, shown: Shown) -> Picture:
    return Picture(name=name, html=page(body, shown), size=size(body), digest=digest(body))
