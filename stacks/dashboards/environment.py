"""The environment's dashboard as plain data: one endpoint at a time, chosen by a selector."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from onboarding import names
from onboarding.deployment import VARIANT, Deployment
from stacks.access import arns
from stacks.alarms.alarm import Alarm
from stacks.alarms.properties import endpoint_alarms
from stacks.dashboards import graphs, instance_graphs
from stacks.dashboards.graphs import cache_graphs, queue_graphs, variant_graphs
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
    Graph,
    Section,
    Shown,
    Widget,
    alarm_graph,
    alarm_states,
    graph,
    laid_out,
    with_headings,
)

SELECTED = "SELECTED_ENDPOINT"
"""What the selector replaces, wherever it stands: in dimensions, searches and alarms' ARNs.

No name has an underscore.
"""
MOST_VALUES = 500
"""That CloudWatch takes in a selector; more are found by a search."""
MOST_DRAWN = 6
"""Endpoints whose lines are drawn.

A graph is scaled to hold every line, those of endpoints not selected too.
"""
STATES_HEIGHT = 3
Lines = Callable[[Deployment], Iterator[Line]]


def dashboard_body(deployments: Sequence[Deployment]) -> dict[str, Any]:
    """Alarms of every endpoint, then all of the one selected.

    Latency, load, errors, instances, cache, queue, variants.

    Numbers of its own that an endpoint has (SLO, capacity, price) are drawn by its alarms' graphs,
    which follow the selector.
    """
    found = [endpoint_alarms(deployment) for deployment in deployments]
    kinds = [_own_kinds(each, alarms) for each, alarms in zip(deployments, found, strict=True)]
    sections = list(
        _Selected(
            deployments=deployments, kinds=kinds, shown=Shown(endpoint=SELECTED, variant=VARIANT)
        ).sections()
    )
    widgets = [
        *overview(deployments, found, drawn=len(deployments) <= MOST_DRAWN),
        *with_headings(sections),
    ]
    return {
        "start": "-PT3H",
        # A longer period would sum more than the minute that the lines are about.
        "periodOverride": "inherit",
        "variables": [_selector(deployments)],
        "widgets": laid_out(widgets),
    }


def _selector(deployments: Sequence[Deployment]) -> dict[str, Any]:
    endpoints = [
        names.endpoint_name(deployment.environment, deployment.name) for deployment in deployments
    ]
    found: dict[str, Any] = {"values": [{"label": name, "value": name} for name in endpoints]}
    if len(endpoints) > MOST_VALUES:
        search = '{AWS/SageMaker,EndpointName,VariantName} MetricName="ModelLatency"'
        found = {"search": search, "populateFrom": "EndpointName"}
    return {
        "type": "pattern",
        "pattern": SELECTED,
        "id": "endpoint",
        "label": "Endpoint",
        "inputType": "select",
        "visible": True,
        "defaultValue": endpoints[0],
        **found,
    }


@dataclass(frozen=True, kw_only=True)
class _Selected:
    """The endpoint selected, whichever it is.

    `kinds` are the alarms of each endpoint's own variant.
    """

    deployments: Sequence[Deployment]
    kinds: Sequence[frozenset[str]]
    shown: Shown

    def sections(self) -> Iterator[Section]:
        """Those that any endpoint has something to show in."""
        yield Section(title="The endpoint selected", widgets=self._states())
        yield Section(title="Latency and failures", widgets=self._latency())
        yield Section(title="Load and instances", widgets=self._load())
        yield Section(title="Hosts", widgets=self._hosts())
        if any(deployment.multi_model for deployment in self.deployments):
            yield Section(
                title="Models in memory (multi-model endpoints)",
                widgets=self._draw(*cache_graphs(self.shown)),
            )
        if any(item.endpoint.asynchronous is not None for item in self.deployments):
            oldest = self._by_alarm(
                "oldest-request", "Age of the oldest request against the alarm, s"
            )
            yield Section(
                title="Queue (asynchronous endpoints)",
                widgets=[*self._draw(*queue_graphs(self.shown)), *oldest],
            )
        if any(len(entry.variants) > 1 for entry in self.deployments):
            yield Section(
                title="Variants side by side", widgets=self._draw(*variant_graphs(SELECTED))
            )

    def _states(self) -> list[Widget]:
        """Alarms that every endpoint has: CloudWatch is told none that is not there."""
        common = frozenset.intersection(*self.kinds)
        arns = [self._alarm(kind) for kind in sorted(common, key=GRAVEST.index)]
        return alarm_states("Its alarms that every endpoint has", arns, height=STATES_HEIGHT)

    def _latency(self) -> list[Widget]:
        slo = _lines(self.deployments, slo_lines)
        return [
            *self._draw(graphs.latency(self.shown, slo)),
            *self._by_alarm("latency", "p99 of the model against the SLO, microseconds"),
            *self._by_alarm("drift", "p99 of the model against its benchmark, microseconds"),
            *self._draw(graphs.failed_share(self.shown), graphs.failed_count(self.shown)),
        ]

    def _load(self) -> list[Widget]:
        measured, aims = (
            _lines(self.deployments, _own(capacity_lines)),
            _lines(self.deployments, _own(target_lines)),
        )
        return [
            *self._draw(
                graphs.requests(self.shown),
                graphs.requests_of_each(self.shown, [*measured, *aims]),
            ),
            *self._by_alarm(
                "saturation", "Requests of each instance against the measured capacity"
            ),
            *self._draw(instance_graphs.instances(self.shown)),
            *self._by_alarm(
                "ceiling", "Instances, while each has more requests than scaling aims at"
            ),
            *self._cost(),
        ]

    def _cost(self) -> list[Widget]:
        cost = instance_graphs.cost_of_all(self.deployments)
        return self._draw(cost) if cost.rows and len(self.deployments) <= MOST_DRAWN else []

    def _hosts(self) -> list[Widget]:
        gpus = sorted(
            {
                count
                for deployment in self.deployments
                for count in gpu_counts(deployment, [deployment.own])
            }
        )
        on_gpus = (
            [
                instance_graphs.gpu_use(self.shown, gpus),
                instance_graphs.gpu_memory(self.shown, gpus),
            ]
            if gpus
            else []
        )
        exact = (
            self._by_alarm("gpu-memory", "GPU memory against the alarm, % of each GPU")
            if len(gpus) > 1
            else []
        )
        return [
            *self._draw(*on_gpus),
            *exact,
            *self._draw(
                instance_graphs.cpu(self.shown), instance_graphs.memory_and_disk(self.shown)
            ),
        ]

    def _draw(self, *graphs: Graph) -> list[Widget]:
        return [graph(self.deployments[0].environment.region, item) for item in graphs]

    def _by_alarm(self, kind: str, title: str) -> list[Widget]:
        """A graph of the selected endpoint's alarm; none where no endpoint has it."""
        count = sum(kind in item for item in self.kinds)
        where = "" if count == len(self.kinds) else f" ({count} of {len(self.kinds)} endpoints)"
        return (
            [alarm_graph(self.deployments[0].environment.region, title + where, self._alarm(kind))]
            if count
            else []
        )

    def _alarm(self, kind: str) -> str:
        return arns.arn(self.deployments[0].environment, "cloudwatch", f"alarm:{SELECTED}-{kind}")


def _own_kinds(deployment: Deployment, alarms: Sequence[Alarm]) -> frozenset[str]:
    return frozenset(alarm.kind for alarm in alarms if alarm.variant in (None, deployment.own))


def _lines(deployments: Sequence[Deployment], lines: Lines) -> list[Line]:
    return (
        merge_lines(line for deployment in deployments for line in lines(deployment))
        if len(deployments) <= MOST_DRAWN
        else []
    )


def _own(lines: Callable[[Deployment, Any], Iterator[Line]]) -> Lines:
    return lambda deployment: lines(deployment, deployment.own)
