"""The dashboard of one endpoint, in its own stack.

It says what that stack deploys, and goes when the endpoint goes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import alarm_arn
from stacks.alarms.properties import endpoint_alarms
from stacks.dashboards import graphs, instance_graphs, lines
from stacks.dashboards.graphs import cache_graphs, queue_graphs, variant_graphs
from stacks.dashboards.lines import instance_prices
from stacks.dashboards.overview import deployed, promises
from stacks.dashboards.widget import (
    Graph,
    Section,
    Shown,
    Widget,
    alarm_states,
    graph,
    laid_out,
    text,
    with_headings,
)

HEAD_HEIGHT = 6


def endpoint_dashboard(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """The `AWS::CloudWatch::Dashboard` by its logical id; empty unless the endpoint has one."""
    if not deployment.endpoint.dashboard:
        return {}
    body = json.dumps(endpoint_dashboard_body(deployment), sort_keys=True)
    properties = {"DashboardName": dashboard_name(deployment), "DashboardBody": body}
    return {"Dashboard": {"Type": "AWS::CloudWatch::Dashboard", "Properties": properties}}


def dashboard_name(deployment: Deployment) -> str:
    """Two hyphens, which no environment's name has in a row: dashboards share one room of names."""
    return f"roundhouse-{deployment.environment.name}--{deployment.name}"


def endpoint_dashboard_body(deployment: Deployment) -> dict[str, Any]:
    """Its alarms, what is deployed, and every graph with the endpoint's own lines.

    A section for each variant.
    """
    sections = [
        section for variant in deployment.variants for section in _sections(deployment, variant)
    ]
    side_by_side = (
        variant_graphs(_endpoint(deployment), list(lines.slo_lines(deployment)))
        if len(deployment.variants) > 1
        else []
    )
    together = Section(title="Variants side by side", widgets=_graphs(deployment, side_by_side))
    widgets = [*_head(deployment), *with_headings([together, *sections])]
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": laid_out(widgets)}


def _head(deployment: Deployment) -> list[Widget]:
    title = f"# {_endpoint(deployment)}\n\nRollout: {deployment.endpoint.rollout}. {lines.COLORS}"
    arns = [
        alarm_arn(deployment, alarm.kind, alarm.variant) for alarm in endpoint_alarms(deployment)
    ]
    explanation = "\n\n".join(
        [title, promises([deployment], counts=True), "**Deployed**", deployed(deployment)]
    )
    return [
        text(explanation, width=12, height=HEAD_HEIGHT),
        *alarm_states("Alarms", arns, height=HEAD_HEIGHT),
    ]


def _sections(deployment: Deployment, variant: Variant) -> Iterator[Section]:
    shown, several = (
        Shown(endpoint=_endpoint(deployment), variant=variant.name),
        len(deployment.variants) > 1,
    )
    where = (
        f" of {variant.name}" + (" (shadow)" if variant.role == "shadow" else "") if several else ""
    )
    queued = deployment.endpoint.asynchronous is not None
    latency_lines = [*lines.slo_lines(deployment), *lines.drift_lines(deployment, variant)]
    yield Section(
        title=f"Latency and failures{where}",
        widgets=_graphs(
            deployment,
            [
                graphs.latency(shown, latency_lines, overhead=not queued),
                graphs.failed_share(shown, queued=queued),
                graphs.failed_count(shown, queued=queued),
            ],
        ),
    )
    if queued:
        found = queue_graphs(
            shown, list(lines.backlog_lines(deployment)), list(lines.wait_lines(deployment))
        )
        yield Section(title="Queue", widgets=_graphs(deployment, found))
    else:
        yield Section(
            title=f"Load{where}",
            widgets=_graphs(deployment, list(_load(deployment, variant, shown))),
        )
    yield Section(
        title=f"Hosts{where}", widgets=_graphs(deployment, list(_hosts(deployment, variant, shown)))
    )
    if deployment.multi_model:
        yield Section(title="Models in memory", widgets=_graphs(deployment, cache_graphs(shown)))


def _load(deployment: Deployment, variant: Variant, shown: Shown) -> Iterator[Graph]:
    measured = [
        *lines.capacity_lines(deployment, variant),
        *lines.target_lines(deployment, variant),
    ]
    yield graphs.requests(shown)
    yield graphs.requests_of_each(shown, measured)
    yield instance_graphs.instances(shown, list(lines.count_lines(deployment, variant)))
    prices = instance_prices(variant)
    if prices is not None:
        yield instance_graphs.cost(shown, prices, list(lines.cost_lines(deployment, variant)))


def _hosts(deployment: Deployment, variant: Variant, shown: Shown) -> Iterator[Graph]:
    gpus, memory = lines.gpu_counts(deployment, [variant]), list(lines.memory_lines(deployment))
    if gpus:
        yield instance_graphs.gpu_use(shown, gpus, list(lines.gpu_lines(deployment, variant)))
        yield instance_graphs.gpu_memory(shown, gpus, memory)
    yield instance_graphs.cpu(
        shown, variant.instance_type.vcpus if len(variant.pools) == 1 else None
    )
    yield instance_graphs.memory_and_disk(shown, [*memory, *lines.disk_lines(deployment)])
    if deployment.endpoint.asynchronous is not None:
        yield instance_graphs.reported_instances(
            shown, list(lines.count_lines(deployment, variant))
        )


def _graphs(deployment: Deployment, wanted: list[Graph]) -> list[Widget]:
    return [graph(deployment.environment.region, item) for item in wanted]


def _endpoint(deployment: Deployment) -> str:
    return names.endpoint_name(deployment.environment, deployment.name)
