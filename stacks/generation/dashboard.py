"""Dashboard of a text generator's endpoint.

CloudWatch documents no widget of a PromQL query, so the engine's own series are listed as queries,
for Query Studio, Grafana, or SageMaker's own dashboard of detailed observability.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from onboarding import arns, names
from onboarding.deployment import VARIANT
from onboarding.metrics import COMPONENTS, INVOCATIONS
from onboarding.prices import price
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.dashboards import graphs
from stacks.dashboards.lines import COLORS, MEASURED, PROMISED, WANTED, Line
from stacks.dashboards.widget import (
    SETTINGS,
    Graph,
    Row,
    Shown,
    Widget,
    alarm_states,
    dashboard,
    graph,
    laid_out,
    text,
    with_headings,
)
from stacks.generation import sizes
from stacks.generation.alarms import alarms, dashboard_queries
from stacks.generation.properties import component_name
from stacks.template import Resources

HEAD_HEIGHT, QUERIES_HEIGHT = 7, 10


def generation_dashboard(deployment: GenerationDeployment) -> Resources:
    """Return the `AWS::CloudWatch::Dashboard` by its logical id."""
    name = f"roundhouse-{deployment.environment.name}--{deployment.name}"
    return {"Dashboard": dashboard(name, dashboard_body(deployment))}


def dashboard_body(deployment: GenerationDeployment) -> dict[str, Any]:
    """Return alarms, what is promised, CloudWatch's metrics, and the engine's queries."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    region = deployment.environment.region
    sections = [
        (title, [graph(region, content) for content in contents])
        for title, contents in generation_graphs(deployment).items()
    ]
    widgets = [
        text(f"# {endpoint}\n\n{promises([deployment])}\n\n{COLORS}", width=12, height=HEAD_HEIGHT),
        *alarm_states("Alarms", generation_alarm_arns(deployment), height=HEAD_HEIGHT),
        *with_headings(sections),
        text(_queries(deployment), height=QUERIES_HEIGHT),
    ]
    return {**SETTINGS, "widgets": laid_out(widgets)}


def generation_widgets(deployments: Sequence[GenerationDeployment]) -> list[Widget]:
    """Return what an environment's dashboard shows of its text generators; none without one."""
    if not deployments:
        return []
    region = deployments[0].environment.region
    found_arns = [arn for item in deployments for arn in generation_alarm_arns(item)]
    requests = [
        (item.name, [graph(region, content) for content in generation_graphs(item)["Requests"]])
        for item in deployments
    ]
    return [
        text(f"## Text generators\n\n{promises(deployments)}", width=12, height=HEAD_HEIGHT),
        *alarm_states(
            "In alarm, of text generators", found_arns, height=HEAD_HEIGHT, states=["ALARM"]
        ),
        *with_headings(requests),
    ]


def generation_alarm_arns(deployment: GenerationDeployment) -> list[str]:
    """Return the ARNs of an endpoint's alarms."""
    return [
        arns.arn(deployment.environment, "cloudwatch", f"alarm:{content['AlarmName']}")
        for content in alarms(deployment).values()
    ]


def promises(deployments: Sequence[GenerationDeployment]) -> str:
    """Return a Markdown table of what each endpoint promises, runs on and costs."""
    rows = ["| Endpoint | SLO: first token, token, at once | Serves on | Requests a copy | USD/h |",
            "| --- | --- | --- | --- | --- |"]  # fmt: skip
    for deployment in deployments:
        slo, item = deployment.spec.slo, deployment.candidate
        hourly = price(deployment.environment.region, "hosting", item.instance_type)
        copies, known = deployment.spec.endpoint.copies, sizes.concurrency(deployment)
        cells = (
            names.endpoint_name(deployment.environment, deployment.name),
            f"{slo.ttft_p95_ms:g} ms, {slo.itl_p95_ms:g} ms, {slo.concurrency}",
            f"{item.instance_type}, {item.scheme}, tensor parallel {item.tensor_parallel}, "
            f"{copies.min} to {copies.max} copies, {item.copies_per_instance} on each instance",
            f"{known.requests} ({'measured' if known.is_measured else 'planned'}), scales at "
            f"{sizes.target(deployment).value:g}",
            "not known" if hourly is None else f"{hourly:.2f} each",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def generation_graphs(deployment: GenerationDeployment) -> Mapping[str, list[Graph]]:
    """Return the graphs of CloudWatch's metrics, by section."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    shown = Shown(endpoint=endpoint, variant=VARIANT)
    first = Line("SLO", deployment.spec.slo.ttft_p95_ms, PROMISED, (deployment.name,))
    rows = graphs.percentiles(shown, "FirstChunkModelLatency")
    streams = ("MidStreamErrors", "broken streams")
    return {
        "Requests": [
            Graph(title="First part of an answer, ms", rows=rows, unit="ms", lines=[first]),
            _requests(deployment, shown),
            graphs.failed_share(shown, (*graphs.ERRORS, streams)),
        ],
        "Load": [_concurrency(deployment, shown), _accelerators(deployment, shown)],
    }


def _requests(deployment: GenerationDeployment, shown: Shown) -> Graph:
    graph = graphs.requests(shown)
    if not sizes.is_component(deployment):
        return graph
    failures = _of_component(deployment, "NoCapacityInvocationFailures", "Sum", "no copy")
    return replace(graph, rows=[*graph.rows, failures])


def _concurrency(deployment: GenerationDeployment, shown: Shown) -> Graph:
    known = sizes.concurrency(deployment)
    lines = [
        Line("most within the SLO", known.requests, MEASURED, (deployment.name,)),
        Line("scaling aims at", sizes.target(deployment).value, WANTED, (deployment.name,)),
    ]
    label = "requests at once, of each copy"
    if sizes.is_component(deployment):
        row = _of_component(deployment, "ConcurrentRequestsPerCopy", "Average", label)
    else:
        row = shown.invocations("ConcurrentRequestsPerModel", "Average", label=label)
    return Graph(title="Requests at once of each copy", rows=[row], unit="requests", lines=lines)


def _accelerators(deployment: GenerationDeployment, shown: Shown) -> Graph:
    """Return use and memory of the GPUs, as 100 for all of them."""
    titles = {"GPUUtilizationNormalized": "use of GPUs", "GPUMemoryUtilizationNormalized": "memory"}
    rows = [
        _of_component(deployment, name, "Average", label, namespace=COMPONENTS)
        if sizes.is_component(deployment)
        else shown.host(name, "Average", label=label)
        for name, label in titles.items()
    ]
    return Graph(title="GPUs of the copies, %", rows=rows, unit="%", most=100)


def _of_component(
    deployment: GenerationDeployment,
    name: str,
    stat: str,
    label: str,
    *,
    namespace: str = INVOCATIONS,
) -> Row:
    of = ["InferenceComponentName", component_name(deployment)]
    return [namespace, name, *of, {"stat": stat, "label": label}]


def _queries(deployment: GenerationDeployment) -> str:
    lines = [f"| {what} | `{query}` |" for what, query in dashboard_queries(deployment).items()]
    head = (
        "## What the engine tells\n\nDetailed observability keeps these; paste a query into "
        "CloudWatch Query Studio, or open SageMaker AI Insights.\n\n"
        "| what | PromQL |\n| --- | --- |"
    )
    return "\n".join((head, *lines))
