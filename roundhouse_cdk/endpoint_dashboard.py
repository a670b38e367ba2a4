"""A CloudWatch dashboard of endpoints: the alarms of all, and every graph of the one selected."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import Stack
from aws_cdk.aws_cloudwatch import CfnDashboard
from constructs import Construct

from onboarding.deployment import VARIANT
from onboarding.metrics import HOST, INVOCATIONS, Alarm, VariantMetrics

Widget = dict[str, Any]
"""As CloudWatch's dashboard body has it."""
COLUMNS, HALF, THIRD, HEIGHT = 24, 12, 8, 6
"""Of CloudWatch's grid."""
MOST_ALARMS, MOST_LISTED, MOST_VALUES = 100, 500, 500
"""That one widget of alarms lists, that the dashboard lists, and that the selector does."""
SELECTED = "SELECTED_ENDPOINT"
"""What the selector replaces, wherever it stands: in dimensions, searches and alarms' ARNs.

No name has an underscore.
"""
QUEUE_METRICS = "Approximate"
"""How the names of metrics begin that are published of an endpoint, and not of its variants."""
HOST_METRICS = (
    *("CPUUtilization", "MemoryUtilization", "DiskUtilization", "LoadedModelCount"),
    *("GPUUtilization", "GPUMemoryUtilization"),
)
COMPONENT_METRICS = ("ConcurrentRequestsPerCopy", "NoCapacityInvocationFailures")
"""Of an inference component, which is called as its endpoint."""
NAMED = re.compile(r"\{(\w+) (\w+)\}")
EACH_VARIANT = "${PROP('Dim.VariantName')}"
"""A label that CloudWatch fills in for each metric that a search finds."""


def _search(namespace: str, name: str, statistic: str, change: str = "") -> Mapping[str, str]:
    """Return the curves of all variants that published in the last two weeks, shadows too."""
    search = (
        f"SEARCH('{{{namespace},EndpointName,VariantName}} "
        f'MetricName="{name}" EndpointName="{SELECTED}"\', \'{statistic}\', 60){change}'
    )
    return {EACH_VARIANT: search}


@dataclass(frozen=True, kw_only=True)
class _Section:
    """Graphs below a heading: their curves by title and label, then alarms by kind and title.

    A curve is an expression over `{METRIC STATISTIC}`. The section is there where `needs`, a field
    of an endpoint, is true of one of them.
    """

    title: str
    graphs: Mapping[str, Mapping[str, str]]
    alarms: Mapping[str, str] = field(default_factory=dict)
    needs: str | None = None


# SageMaker's latencies are microseconds, and its errors 0 or 1 for each request.
SECTIONS = (
    _Section(
        title="Latency and failures",
        graphs={
            "Latency of the model, ms": {
                **{name: f"{{ModelLatency {name}}} / 1000" for name in ("p50", "p95", "p99")},
                # CloudWatch keeps no percentiles of it.
                "SageMaker's overhead, average": "{OverheadLatency Average} / 1000",
            },
            "Failed requests, %": {
                "all, without an answer too": "{InvocationModelErrors Average} * 100",
                "4XX": "{Invocation4XXErrors Average} * 100",
                "5XX": "{Invocation5XXErrors Average} * 100",
            },
            "Failed requests a minute": {
                "all, without an answer too": "{InvocationModelErrors Sum}",
                "4XX": "{Invocation4XXErrors Sum}",
                "5XX": "{Invocation5XXErrors Sum}",
            },
        },
        alarms={
            "latency": "Latency of the model against the SLO, microseconds",
            "slow": "p99 of the model against the SLO, microseconds",
        },
    ),
    _Section(
        title="Load",
        graphs={
            "Requests a minute": {"requests": "{Invocations Sum}"},
            "Requests of each instance a minute": {
                "requests of each instance": "{InvocationsPerInstance Sum}"
            },
            # SageMaker publishes no count: this one repeats through minutes without a request.
            "Instances": {
                "instances that answer": (
                    "FILL(FLOOR({Invocations Sum} / {InvocationsPerInstance Sum} + 0.5), REPEAT)"
                ),
                # Each instance publishes its memory once a minute.
                "instances that reported": "{MemoryUtilization SampleCount}",
            },
        },
        alarms={
            "saturation": "Load against the measured capacity",
            "ceiling": "Instances, while each has more requests than scaling aims at",
        },
    ),
    _Section(
        title="Queue (asynchronous endpoints)",
        needs="is_queue",
        graphs={
            "Backlog, requests": {
                "waiting": "{ApproximateBacklogSize Average}",
                "waiting for each instance": "{ApproximateBacklogSizePerInstance Average}",
            },
            "Requests of the queue a minute": {
                "processed": "{InvocationsProcessed Sum}",
                "failed": "{InvocationFailures Sum}",
                "expired": "{ExpiredRequests Sum}",
            },
            # Source: SageMaker developer guide, "Monitor asynchronous endpoints".
            "Time of a request, average, s": {
                "in the queue": "{TimeInBacklog Average} / 1000000",
                "in the model": "{ModelLatency Average} / 1000000",
            },
        },
        alarms={"oldest-request": "Age of the oldest request against the alarm, s"},
    ),
    _Section(
        title="Inference components",
        needs="is_component",
        graphs={
            "Requests at once": {"of each copy": "{ConcurrentRequestsPerCopy Average}"},
            "Requests a minute that find no copy": {
                "no copy": "{NoCapacityInvocationFailures Sum}"
            },
        },
    ),
    _Section(
        title="Text generators",
        needs="is_generator",
        graphs={
            "First part of an answer, ms": {
                name: f"{{FirstChunkModelLatency {name}}} / 1000" for name in ("p50", "p95", "p99")
            },
            "Broken streams a minute": {"broken streams": "{MidStreamErrors Sum}"},
        },
        alarms={"first-token": "Time to the first part against the SLO, microseconds"},
    ),
    _Section(
        title="Hosts",
        graphs={
            "GPUs, % (100 for each GPU)": {
                "use, average": "{GPUUtilization Average}",
                "memory, fullest instance": "{GPUMemoryUtilization Maximum}",
            },
            "CPU, % (100 for each core)": {"average": "{CPUUtilization Average}"},
            "Host memory and disk, % of the fullest instance": {
                "memory": "{MemoryUtilization Maximum}",
                "disk": "{DiskUtilization Maximum}",
            },
        },
        alarms={"gpu-memory": "GPU memory against the alarm, % of each GPU"},
    ),
    _Section(
        title="Models in memory (multi-model endpoints)",
        needs="is_multi_model",
        graphs={
            "Cache hits, %": {"requests whose model is in memory": "{ModelCacheHit Average} * 100"},
            "Models loaded, loads and unloads a minute": {
                "models loaded, each instance": "{LoadedModelCount Average}",
                "loads a minute": "{ModelLoadingTime SampleCount}",
                "unloads a minute": "{ModelUnloadingTime SampleCount}",
            },
            "Loading, ms on average": {
                "wait of a request": "{ModelLoadingWaitTime Average} / 1000",
                "download": "{ModelDownloadingTime Average} / 1000",
                "load": "{ModelLoadingTime Average} / 1000",
                "unload": "{ModelUnloadingTime Average} / 1000",
            },
        },
    ),
    _Section(
        title="Variants side by side",
        needs="has_variants",
        graphs={
            "Variants: p99 of the model, ms": _search(
                INVOCATIONS, "ModelLatency", "p99", " / 1000"
            ),
            "Variants: requests a minute": _search(INVOCATIONS, "Invocations", "Sum"),
            "Variants: failed requests, %": _search(
                INVOCATIONS, "InvocationModelErrors", "Average", " * 100"
            ),
            "Variants: instances that reported": _search(HOST, "MemoryUtilization", "SampleCount"),
        },
    ),
)


@dataclass(frozen=True, kw_only=True)
class WatchedEndpoint:
    """An endpoint by SageMaker's name, its alarms, and which graphs it has something to show in."""

    name: str
    alarms: Sequence[Alarm] = ()
    is_queue: bool = False
    is_multi_model: bool = False
    is_component: bool = False
    is_generator: bool = False
    has_variants: bool = False


@dataclass(frozen=True, kw_only=True)
class EndpointDashboardProps:
    """`name` is the dashboard's own in the account; one endpoint or more of the stack's region."""

    name: str
    endpoints: Sequence[WatchedEndpoint]


class EndpointDashboard(Construct):
    """Deploys `dashboard`: a selector shows one endpoint at a time.

    Numbers of an endpoint's own, such as its SLO, are drawn by its alarms, which follow the
    selector. It is typed L1: of the CDK's widgets each would ask Python for its place. Raises
    ValueError without an endpoint.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, props: EndpointDashboardProps
    ) -> None:
        super().__init__(scope, construct_id)
        if not props.endpoints:
            raise ValueError(
                f"{self.node.path}: no endpoint; allowed: one or more; add the first to `endpoints`"
            )
        self._endpoints, stack = props.endpoints, Stack.of(self)
        self._region = stack.region
        self._alarm = f"arn:{stack.partition}:cloudwatch:{self._region}:{stack.account}:alarm"
        body = {
            "start": "-PT3H",
            # A longer period would sum more than the minute that the graphs are about.
            "periodOverride": "inherit",
            "widgets": list(_placed((*self._head(), *self._sections()))),
            "variables": [self._selector()],
        }
        self.dashboard = CfnDashboard(
            self, "Dashboard", dashboard_name=props.name, dashboard_body=stack.to_json_string(body)
        )

    def _selector(self) -> Widget:
        names = [endpoint.name for endpoint in self._endpoints]
        values: Widget = {"values": [{"label": name, "value": name} for name in names]}
        if len(names) > MOST_VALUES:
            search = '{AWS/SageMaker,EndpointName,VariantName} MetricName="ModelLatency"'
            values = {"search": search, "populateFrom": "EndpointName"}
        return {
            "pattern": SELECTED,
            "type": "pattern",
            "inputType": "select",
            "id": "endpoint",
            "defaultValue": names[0],
            "visible": True,
            "label": "Endpoint",
            **values,
        }

    def _head(self) -> Iterator[Widget]:
        """Yield alarms of every endpoint, and those of the one selected that every endpoint has.

        CloudWatch is told of no alarm that is not there. Of more than it lists the gravest count.
        """
        alarms = [alarm for endpoint in self._endpoints for alarm in endpoint.alarms]
        # No data is no instance; and what takes a version back is an SLO or an error.
        alarms.sort(key=lambda alarm: (alarm.missing != "breaching", not alarm.rolls_back))
        names = [alarm.name for alarm in alarms[:MOST_LISTED]]
        left_out = len(alarms) - len(names)
        more = f" Not listed beside: the {left_out} least grave alarms." if left_out else ""
        count = f"{len(self._endpoints)} endpoint{'s' if len(self._endpoints) > 1 else ''}"
        words = f"# {count}\n\nChoose one above.{more}"
        yield _widget("text", HALF, HEIGHT, markdown=words)
        for first in range(0, len(names), MOST_ALARMS):
            listed = names[first : first + MOST_ALARMS]
            yield self._states("In alarm", listed, states=["ALARM"])
        kinds = dict.fromkeys(alarm.kind for alarm in self._endpoints[0].alarms)
        common = [kind for kind in kinds if self._count(kind) == len(self._endpoints)]
        if common:
            title = "Alarms of the endpoint selected that every endpoint has"
            yield self._states(title, [f"{SELECTED}-{kind}" for kind in common])

    def _states(self, title: str, names: Sequence[str], **more: Any) -> Widget:
        alarms = [f"{self._alarm}:{name}" for name in names]
        order = {"sortBy": "stateUpdatedTimestamp"}
        return _widget("alarm", HALF, HEIGHT, title=title, alarms=alarms, **more, **order)

    def _sections(self) -> Iterator[Widget]:
        for section in SECTIONS:
            needs = section.needs
            if needs is None or any(getattr(endpoint, needs) for endpoint in self._endpoints):
                yield _widget("text", COLUMNS, 1, markdown=f"## {section.title}")
                for title, curves in section.graphs.items():
                    rows = [
                        row
                        for number, (label, text) in enumerate(curves.items())
                        for row in _curve(label, text, number)
                    ]
                    yield self._graph(title, {"showUnits": False}, metrics=rows, period=60)
                for kind, title in section.alarms.items():
                    if count := self._count(kind):
                        yield self._alarm_graph(kind, title, count)

    def _graph(self, title: str, axis: Mapping[str, Any], **more: Any) -> Widget:
        shown = {"view": "timeSeries", "title": title, "region": self._region}
        return _widget("metric", THIRD, HEIGHT, **shown, yAxis={"left": {"min": 0, **axis}}, **more)

    def _alarm_graph(self, kind: str, title: str, count: int) -> Widget:
        """Return the metric of the selected endpoint's alarm, with its threshold as a line."""
        every = len(self._endpoints)
        words = title if count == every else f"{title} ({count} of {every} endpoints)"
        alarm = f"{self._alarm}:{SELECTED}-{kind}"
        return self._graph(words, {}, annotations={"alarms": [alarm]})

    def _count(self, kind: str) -> int:
        """Return how many endpoints have an alarm of a kind on their own variant."""
        return sum(
            any(alarm.kind == kind and alarm.variant == VARIANT for alarm in endpoint.alarms)
            for endpoint in self._endpoints
        )


def _widget(kind: str, width: int, height: int, **properties: Any) -> Widget:
    return {"type": kind, "width": width, "height": height, "properties": properties}


def _placed(widgets: Iterable[Widget]) -> Iterator[Widget]:
    """Yield widgets with their places, in lines as wide as the grid."""
    x = y = bottom = 0
    for widget in widgets:
        if x + widget["width"] > COLUMNS:
            x, y = 0, bottom
        properties = widget.pop("properties")
        yield {**widget, "x": x, "y": y, "properties": properties}
        x, bottom = x + widget["width"], max(bottom, y + widget["height"])


def _curve(label: str, text: str, number: int) -> Iterator[list[Any]]:
    """Yield a curve of the selected endpoint, then its metrics, whose ids are the graph's alone."""
    if (plain := NAMED.fullmatch(text)) is not None:
        yield [*_metric(*plain.groups()), {"label": label, "stat": plain[2]}]
        return
    metrics = []
    for at, (name, statistic) in enumerate(NAMED.findall(text)):
        metric_id = f"m{number}{'abcdef'[at]}"
        text = text.replace(f"{{{name} {statistic}}}", metric_id)
        options = {"id": metric_id, "visible": False, "stat": statistic}
        metrics.append([*_metric(name, statistic), options])
    yield [{"label": label, "expression": text}]
    yield from metrics


def _metric(name: str, statistic: str) -> list[str]:
    """Return a metric's namespace, name, and the dimensions of the selected endpoint."""
    of = VariantMetrics(SELECTED, VARIANT)
    if name in COMPONENT_METRICS:
        metric = of.component(name, statistic)
    elif name.startswith(QUEUE_METRICS):
        metric = of.queue(name, statistic)
    else:
        metric = (of.host if name in HOST_METRICS else of.invocations)(name, statistic)
    return [metric.namespace, name, *(word for pair in metric.dimensions for word in pair)]
