"""Dashboard of a text generator's endpoint.

CloudWatch documents no widget of a PromQL query, so the engine's own series are listed as queries,
for Query Studio, Grafana, or SageMaker's own dashboard of detailed observability.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT
from onboarding.metrics import COMPONENTS, INVOCATIONS
from onboarding.prices import price
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.access import arns
from stacks.dashboards.lines import COLORS, MEASURED, PROMISED, WANTED, Line
from stacks.dashboards.widget import (
    Graph,
    Row,
    Shown,
    Widget,
    alarm_states,
    computed,
    graph,
    hidden,
    laid_out,
    text,
    with_headings,
)
from stacks.generation import sizes
from stacks.generation.alarms import alarms, dashboard_queries
from stacks.generation.properties import component_name

HEAD_HEIGHT, QUERIES_HEIGHT = 7, 10
ERRORS = (
    ("InvocationModelErrors", "all, without an answer too"),
    ("Invocation4XXErrors", "4XX"),
    ("Invocation5XXErrors", "5XX"),
    ("MidStreamErrors", "broken streams"),
)


def generation_dashboard(deployment: GenerationDeployment) -> dict[str, dict[str, Any]]:
    """Return the `AWS::CloudWatch::Dashboard` by its logical id."""
    name = f"roundhouse-{deployment.environment.name}--{deployment.name}"
    body = json.dumps(dashboard_body(deployment), sort_keys=True)
    properties = {"DashboardName": name, "DashboardBody": body}
    return {"Dashboard": {"Type": "AWS::CloudWatch::Dashboard", "Properties": properties}}


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
    return {"start": "-PT3H", "periodOverride": "inherit", "widgets": laid_out(widgets)}


def generation_widgets(deployments: Sequence[GenerationDeployment]) -> list[Widget]:
    """Return what an environment's dashboard shows of its text generators; none without one."""
    if not deployments:
        return []
    region = deployments[0].environment.region
    found_arns = [arn for item in deployments for arn in generation_alarm_arns(item)]
    graphs = [
        (deployment.name, [graph(region, content) for content in contents])
        for deployment in deployments
        for contents in (generation_graphs(deployment)["Requests"],)
    ]
    return [
        text(f"## Text generators\n\n{promises(deployments)}", width=12, height=HEAD_HEIGHT),
        *alarm_states(
            "In alarm, of text generators", found_arns, height=HEAD_HEIGHT, states=["ALARM"]
        ),
        *with_headings(graphs),
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
    return {
        "Requests": [_first_token(shown, first), _requests(deployment, shown), _errors(shown)],
        "Load": [_concurrency(deployment), *_accelerators(deployment)],
    }


def _first_token(shown: Shown, slo: Line) -> Graph:
    rows: list[Row] = []
    for percentile in ("p50", "p95", "p99"):
        ids = (f"{percentile}_us", percentile)
        rows += shown.converted(
            "FirstChunkModelLatency", percentile, "/ 1000", label=percentile, ids=ids
        )
    return Graph(title="First part of an answer, ms", rows=rows, unit="ms", lines=[slo])


def _requests(deployment: GenerationDeployment, shown: Shown) -> Graph:
    rows: list[Row] = [shown.invocations("Invocations", "Sum", label="requests")]
    if sizes.is_component(deployment):
        rows.append(_of_component(deployment, "NoCapacityInvocationFailures", "Sum", "no copy"))
    return Graph(title="Requests a minute", rows=rows, unit="requests")


def _errors(shown: Shown) -> Graph:
    """The metrics are 0 or 1 for each request, so their averages are shares."""
    rows: list[Row] = []
    for number, (metric, label) in enumerate(ERRORS):
        rows.append(shown.invocations(metric, "Average", **hidden(f"share{number}")))
        rows.append(computed(f"share{number} * 100", label, f"percent{number}"))
    return Graph(title="Failed requests, %", rows=rows, unit="%")


def _concurrency(deployment: GenerationDeployment) -> Graph:
    known = sizes.concurrency(deployment)
    lines = [
        Line("most within the SLO", known.requests, MEASURED, (deployment.name,)),
        Line("scaling aims at", sizes.target(deployment).value, WANTED, (deployment.name,)),
    ]
    label = "requests at once, of each copy"
    if sizes.is_component(deployment):
        rows = [_of_component(deployment, "ConcurrentRequestsPerCopy", "Average", label)]
    else:
        endpoint = names.endpoint_name(deployment.environment, deployment.name)
        shown = Shown(endpoint=endpoint, variant=VARIANT)
        rows = [shown.invocations("ConcurrentRequestsPerModel", "Average", label=label)]
    return Graph(title="Requests at once of each copy", rows=rows, unit="requests", lines=lines)


def _accelerators(deployment: GenerationDeployment) -> list[Graph]:
    """Return use and memory of the GPUs, as 100 for all of them."""
    titles = {"GPUUtilizationNormalized": "use of GPUs", "GPUMemoryUtilizationNormalized": "memory"}
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    shown = Shown(endpoint=endpoint, variant=VARIANT)
    rows = [
        _of_component(deployment, name, "Average", label, namespace=COMPONENTS)
        if sizes.is_component(deployment)
        else shown.host(name, "Average", label=label)
        for name, label in titles.items()
    ]
    return [Graph(title="GPUs of the copies, %", rows=rows, unit="%", most=100)]


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
