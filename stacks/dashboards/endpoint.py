"""The dashboard of one endpoint, which says what its stack deploys and goes with it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import Deployment, Variant
from stacks.alarms.alarm import alarm_arn
from stacks.alarms.endpoint import endpoint_alarms
from stacks.dashboards import graphs, lines
from stacks.dashboards.overview import deployed, promises
from stacks.dashboards.widget import (
    SETTINGS,
    Graph,
    Section,
    Shown,
    Widget,
    alarm_states,
    dashboard,
    graph,
    laid_out,
    text,
    with_headings,
)
from stacks.template import Resources

HEAD_HEIGHT = 6


def endpoint_dashboard(deployment: Deployment) -> Resources:
    """The `AWS::CloudWatch::Dashboard` by its logical id; empty unless the endpoint has one."""
    if not deployment.endpoint.dashboard:
        return {}
    body = endpoint_dashboard_body(deployment)
    return {"Dashboard": dashboard(dashboard_name(deployment), body)}


def dashboard_name(deployment: Deployment) -> str:
    """The account's name of the dashboard; no environment's name has two hyphens in a row."""
    return f"roundhouse-{deployment.environment.name}--{deployment.name}"


def endpoint_dashboard_body(deployment: Deployment) -> dict[str, Any]:
    """Its alarms, what is deployed, and every graph with the endpoint's own lines.

    A section for each variant.
    """
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    sections: list[tuple[str, Sequence[Graph]]] = []
    if len(deployment.variants) > 1:
        side_by_side = graphs.variant_graphs(endpoint, lines.slo_lines(deployment))
        sections.append(("Variants side by side", side_by_side))
    for variant in deployment.variants:
        shown = Shown(endpoint=endpoint, variant=variant.name)
        sections += _sections(deployment, variant, shown)
    region = deployment.environment.region
    drawn: list[Section] = [
        (title, [graph(region, content) for content in contents]) for title, contents in sections
    ]
    widgets = [*_head(deployment, endpoint), *with_headings(drawn)]
    return {**SETTINGS, "widgets": laid_out(widgets)}


def _head(deployment: Deployment, endpoint: str) -> list[Widget]:
    title = f"# {endpoint}\n\nRollout: {deployment.endpoint.rollout}. {lines.COLORS}"
    arns = [alarm_arn(deployment, alarm) for alarm in endpoint_alarms(deployment)]
    explanation = "\n\n".join(
        [title, promises([deployment], counts=True), "**Deployed**", deployed(deployment)]
    )
    return [
        text(explanation, width=12, height=HEAD_HEIGHT),
        *alarm_states("Alarms", arns, height=HEAD_HEIGHT),
    ]


def _sections(
    deployment: Deployment, variant: Variant, shown: Shown
) -> Iterator[tuple[str, Sequence[Graph]]]:
    role = " (shadow)" if variant.role == "shadow" else ""
    of = f" of {variant.name}{role}" if len(deployment.variants) > 1 else ""
    queued, metrics = deployment.endpoint.asynchronous is not None, deployment.endpoint.metrics
    latency = [*lines.slo_lines(deployment), *lines.drift_lines(deployment, variant)]
    yield (
        f"Latency and failures{of}",
        [
            graphs.latency(shown, latency, overhead=not queued, end_to_end=metrics is not None),
            graphs.failed_share(shown, graphs.ERRORS[queued:]),
            graphs.failed_count(shown, graphs.ERRORS[queued:]),
        ],
    )
    if queued:
        backlog, waits = lines.backlog_lines(deployment), lines.wait_lines(deployment)
        yield "Queue", graphs.queue_graphs(shown, backlog, waits)
    else:
        yield f"Load{of}", list(_load(deployment, variant, shown))
    yield f"Hosts{of}", list(_hosts(deployment, variant, shown))
    if deployment.multi_model:
        yield "Models in memory", graphs.cache_graphs(shown)


def _load(deployment: Deployment, variant: Variant, shown: Shown) -> Iterator[Graph]:
    aims = lines.target_lines(deployment, variant)
    yield graphs.requests(shown)
    yield graphs.requests_of_each(shown, [*lines.capacity_lines(deployment, variant), *aims])
    yield graphs.instances(shown, lines.count_lines(deployment, variant))
    prices = lines.instance_prices(deployment, variant)
    if prices is not None:
        yield graphs.cost(shown, prices, lines.cost_lines(deployment, variant))


def _hosts(deployment: Deployment, variant: Variant, shown: Shown) -> Iterator[Graph]:
    gpus, memory = lines.gpu_counts([variant]), lines.memory_lines(deployment)
    if gpus:
        yield graphs.gpu_use(shown, gpus, lines.gpu_lines(deployment, variant))
        yield graphs.gpu_memory(shown, gpus, memory)
    vcpus = variant.instance_type.vcpus if len(variant.pools) == 1 else None
    yield graphs.cpu(shown, vcpus, lines.cpu_lines(deployment, variant))
    yield graphs.memory_and_disk(shown, [*memory, *lines.disk_lines(deployment)])
    if deployment.endpoint.asynchronous is not None:
        yield graphs.reported_instances(shown, lines.count_lines(deployment, variant))
