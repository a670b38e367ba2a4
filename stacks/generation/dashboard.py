"""Dashboard of a text generator's endpoint.

CloudWatch documents no widget of a PromQL query, so the engine's own series are listed as queries,
for Query Studio, Grafana, or SageMaker's own dashboard of detailed observability.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onboarding import names
from onboarding.deployment import VARIANT
from onboarding.metrics import (
    COMPONENTS,
    AlarmStates,
    Graph,
    Line,
    Metric,
    Section,
    Text,
    VariantMetrics,
)
from onboarding.prices import price
from onboarding.text_generation.generation_deployment import GenerationDeployment
from stacks.alarms.alarm import alarm_arn
from stacks.dashboards import graphs
from stacks.dashboards.lines import COLORS, MEASURED, PROMISED, WANTED
from stacks.generation import sizes
from stacks.generation.alarms import component_metric, dashboard_queries, endpoint_alarms

HEAD_HEIGHT, QUERIES_HEIGHT = 7, 10


def endpoint_sections(deployment: GenerationDeployment) -> list[Section]:
    """Return alarms, what is promised, CloudWatch's metrics, and the engine's queries."""
    endpoint = names.endpoint_name(deployment.environment, deployment.name)
    words = f"# {endpoint}\n\n{promises([deployment])}\n\n{COLORS}"
    head: list[Text | AlarmStates] = [
        Text(markdown=words, width=12, height=HEAD_HEIGHT),
        AlarmStates(title="Alarms", arns=_alarm_arns([deployment]), height=HEAD_HEIGHT),
    ]
    return [
        Section(widgets=head),
        Section(title="Requests", widgets=_requests(deployment)),
        Section(title="Load", widgets=[_concurrency(deployment), _accelerators(deployment)]),
        Section(widgets=[Text(markdown=_queries(deployment), height=QUERIES_HEIGHT)]),
    ]


def environment_sections(deployments: Sequence[GenerationDeployment]) -> list[Section]:
    """Return what an environment's dashboard shows of its text generators; none without one."""
    if not deployments:
        return []
    words = f"## Text generators\n\n{promises(deployments)}"
    states = AlarmStates(
        title="In alarm, of text generators",
        arns=_alarm_arns(deployments),
        height=HEAD_HEIGHT,
        in_alarm=True,
    )
    return [
        Section(widgets=[Text(markdown=words, width=12, height=HEAD_HEIGHT), states]),
        *(Section(title=item.name, widgets=_requests(item)) for item in deployments),
    ]


def _alarm_arns(deployments: Sequence[GenerationDeployment]) -> list[str]:
    return [alarm_arn(item, alarm) for item in deployments for alarm in endpoint_alarms(item)]


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


def _own_metrics(deployment: GenerationDeployment) -> VariantMetrics:
    return VariantMetrics(names.endpoint_name(deployment.environment, deployment.name), VARIANT)


def _requests(deployment: GenerationDeployment) -> list[Graph]:
    of = _own_metrics(deployment)
    requests = graphs.requests(of)
    if sizes.is_component(deployment):
        failures = component_metric(deployment, "NoCapacityInvocationFailures", "Sum")
        requests = replace(requests, curves={**requests.curves, "no copy": failures})
    return [
        Graph(
            title="First part of an answer, ms",
            curves=graphs.percentiles(of, "FirstChunkModelLatency"),
            unit="ms",
            lines=[Line("SLO", deployment.spec.slo.ttft_p95_ms, PROMISED, (deployment.name,))],
        ),
        requests,
        graphs.failed_share(of, (*graphs.ERRORS, ("MidStreamErrors", "broken streams"))),
    ]


def _concurrency(deployment: GenerationDeployment) -> Graph:
    known, of = sizes.concurrency(deployment), (deployment.name,)
    busy = _own_metrics(deployment).invocations("ConcurrentRequestsPerModel", "Average")
    if sizes.is_component(deployment):
        busy = component_metric(deployment, "ConcurrentRequestsPerCopy", "Average")
    return Graph(
        title="Requests at once of each copy",
        curves={"requests at once, of each copy": busy},
        unit="requests",
        lines=[
            Line("most within the SLO", known.requests, MEASURED, of),
            Line("scaling aims at", sizes.target(deployment).value, WANTED, of),
        ],
    )


def _accelerators(deployment: GenerationDeployment) -> Graph:
    """Return use and memory of the GPUs, as 100 for all of them."""

    def metric(name: str) -> Metric:
        if sizes.is_component(deployment):
            return component_metric(deployment, name, "Average", namespace=COMPONENTS)
        return _own_metrics(deployment).host(name, "Average")

    curves = {
        "use of GPUs": metric("GPUUtilizationNormalized"),
        "memory": metric("GPUMemoryUtilizationNormalized"),
    }
    return Graph(title="GPUs of the copies, %", curves=curves, unit="%", most=100)


def _queries(deployment: GenerationDeployment) -> str:
    lines = [f"| {what} | `{query}` |" for what, query in dashboard_queries(deployment).items()]
    head = (
        "## What the engine tells\n\nDetailed observability keeps these; paste a query into "
        "CloudWatch Query Studio, or open SageMaker AI Insights.\n\n"
        "| what | PromQL |\n| --- | --- |"
    )
    return "\n".join((head, *lines))
