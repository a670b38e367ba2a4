"""The environment's dashboard as plain data: one endpoint at a time, chosen by a selector."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from onboarding import arns, names
from onboarding.deployment import VARIANT, Deployment
from onboarding.environment_spec import EnvironmentSpec
from stacks.alarms.properties import endpoint_alarms
from stacks.dashboards import graphs
from stacks.dashboards.lines import (
    Line,
    capacity_lines,
    gpu_counts,
    merge_lines,
    slo_lines,
    target_lines,
)
from stacks.dashboards.overview import GRAVEST, overview
from stacks.dashboards.widget import (
    SETTINGS,
    Graph,
    Section,
    Shown,
    Widget,
    alarm_graph,
    alarm_states,
    dashboard,
    graph,
    laid_out,
    with_headings,
)
from stacks.template import Resource

SELECTED = "SELECTED_ENDPOINT"
"""What the selector replaces, wherever it stands: in dimensions, searches and alarms' ARNs.

No name has an underscore.
"""
MOST_VALUES = 500
"""That CloudWatch takes in a selector; more are found by a search."""
MOST_DRAWN = 6
"""Endpoints whose lines are drawn: a graph is scaled to hold those not selected, too."""
STATES_HEIGHT = 3


def environment_dashboard(
    environment: EnvironmentSpec, deployments: Sequence[Deployment], others: Sequence[Widget] = ()
) -> Resource:
    """Return the environment's dashboard as a CloudFormation resource.

    `others` are widgets of endpoints of another kind, below those of `deployments`.
    """
    return dashboard(f"roundhouse-{environment.name}", dashboard_body(deployments, others))


def dashboard_body(
    deployments: Sequence[Deployment], others: Sequence[Widget] = ()
) -> dict[str, Any]:
    """Alarms of every endpoint, then all of the one selected.

    Latency, load, errors, instances, cache, queue, variants. Numbers of its own that an endpoint
    has (SLO, capacity, price) are drawn by its alarms' graphs, which follow the selector.
    """
    if not deployments:
        return {**SETTINGS, "widgets": laid_out(others)}
    alarms = [endpoint_alarms(deployment) for deployment in deployments]
    kinds = [
        frozenset(alarm.kind for alarm in own if alarm.variant in (None, deployment.own))
        for deployment, own in zip(deployments, alarms, strict=True)
    ]
    sections = list(_SelectedEndpoint(deployments, kinds).sections())
    widgets = [
        *overview(deployments, alarms, drawn=len(deployments) <= MOST_DRAWN),
        *with_headings(sections),
    ]
    return {
        **SETTINGS,
        "variables": [_selector(deployments)],
        "widgets": laid_out([*widgets, *others]),
    }


def _selector(deployments: Sequence[Deployment]) -> dict[str, Any]:
    endpoints = [
        names.endpoint_name(deployment.environment, deployment.name) for deployment in deployments
    ]
    values: dict[str, Any] = {"values": [{"label": name, "value": name} for name in endpoints]}
    if len(endpoints) > MOST_VALUES:
        search = '{AWS/SageMaker,EndpointName,VariantName} MetricName="ModelLatency"'
        values = {"search": search, "populateFrom": "EndpointName"}
    return {
        "type": "pattern",
        "pattern": SELECTED,
        "id": "endpoint",
        "label": "Endpoint",
        "inputType": "select",
        "visible": True,
        "defaultValue": endpoints[0],
        **values,
    }


class _SelectedEndpoint:
    """The endpoint selected, whichever it is; `kinds` are the alarms of each own variant."""

    def __init__(self, deployments: Sequence[Deployment], kinds: Sequence[frozenset[str]]) -> None:
        self._deployments = deployments
        self._kinds = kinds
        self._environment = deployments[0].environment
        self._shown = Shown(endpoint=SELECTED, variant=VARIANT)

    def sections(self) -> Iterator[Section]:
        """Those that any endpoint has something to show in."""
        yield "The endpoint selected", self._states()
        yield "Latency and failures", self._latency()
        yield "Load and instances", self._load()
        yield "Hosts", self._hosts()
        if any(deployment.multi_model for deployment in self._deployments):
            widgets = self._draw(*graphs.cache_graphs(self._shown))
            yield "Models in memory (multi-model endpoints)", widgets
        if any(item.endpoint.asynchronous is not None for item in self._deployments):
            title = "Age of the oldest request against the alarm, s"
            widgets = self._draw(*graphs.queue_graphs(self._shown))
            widgets += self._by_alarm("oldest-request", title)
            yield "Queue (asynchronous endpoints)", widgets
        if any(len(deployment.variants) > 1 for deployment in self._deployments):
            yield "Variants side by side", self._draw(*graphs.variant_graphs(SELECTED))

    def _states(self) -> list[Widget]:
        """Alarms that every endpoint has: CloudWatch is told none that is not there."""
        common = frozenset.intersection(*self._kinds)
        arns = [self._alarm(kind) for kind in sorted(common, key=GRAVEST.index)]
        return alarm_states("Its alarms that every endpoint has", arns, height=STATES_HEIGHT)

    def _latency(self) -> list[Widget]:
        slo = self._lines(slo_lines(deployment) for deployment in self._deployments)
        return [
            *self._draw(graphs.latency(self._shown, slo)),
            *self._by_alarm("latency", "p99 of the model against the SLO, microseconds"),
            *self._by_alarm("drift", "p99 of the model against its benchmark, microseconds"),
            *self._draw(graphs.failed_share(self._shown), graphs.failed_count(self._shown)),
        ]

    def _load(self) -> list[Widget]:
        pairs = [(deployment, deployment.own) for deployment in self._deployments]
        measured, aims = (
            self._lines(lines(deployment, own) for deployment, own in pairs)
            for lines in (capacity_lines, target_lines)
        )
        cost = graphs.cost_of_all(self._deployments)
        few = cost.rows and len(self._deployments) <= MOST_DRAWN
        return [
            *self._draw(
                graphs.requests(self._shown),
                graphs.requests_of_each(self._shown, [*measured, *aims]),
            ),
            *self._by_alarm(
                "saturation", "Requests of each instance against the measured capacity"
            ),
            *self._draw(graphs.instances(self._shown)),
            *self._by_alarm(
                "ceiling", "Instances, while each has more requests than scaling aims at"
            ),
            *(self._draw(cost) if few else ()),
        ]

    def _hosts(self) -> list[Widget]:
        counts = [gpu_counts([deployment.own]) for deployment in self._deployments]
        gpus = sorted({count for own in counts for count in own})
        widgets: list[Widget] = []
        if gpus:
            use, memory = graphs.gpu_use, graphs.gpu_memory
            widgets += self._draw(use(self._shown, gpus), memory(self._shown, gpus))
        if len(gpus) > 1:
            title = "GPU memory against the alarm, % of each GPU"
            widgets += self._by_alarm("gpu-memory", title)
        disk = graphs.memory_and_disk(self._shown)
        return [*widgets, *self._draw(graphs.cpu(self._shown), disk)]

    def _lines(self, lines: Iterable[list[Line]]) -> list[Line]:
        if len(self._deployments) > MOST_DRAWN:
            return []
        return merge_lines(line for own in lines for line in own)

    def _draw(self, *contents: Graph) -> list[Widget]:
        return [graph(self._environment.region, content) for content in contents]

    def _by_alarm(self, kind: str, title: str) -> list[Widget]:
        """A graph of the selected endpoint's alarm; none where no endpoint has it."""
        count = sum(kind in kinds for kinds in self._kinds)
        where = "" if count == len(self._kinds) else f" ({count} of {len(self._kinds)} endpoints)"
        widget = alarm_graph(self._environment.region, title + where, self._alarm(kind))
        return [widget] if count else []

    def _alarm(self, kind: str) -> str:
        return arns.arn(self._environment, "cloudwatch", f"alarm:{SELECTED}-{kind}")
