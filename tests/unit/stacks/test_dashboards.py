"""The environment's dashboard: within CloudWatch's limits, of what SageMaker publishes."""

from __future__ import annotations

import dataclasses
import json
import re
from functools import cache

import pytest
from aws_cdk import App

from onboarding.hosting_spec import AsynchronousSpec
from onboarding.metrics import HOST, INVOCATIONS
from roundhouse_cdk.endpoint_dashboard import SELECTED
from stacks.alarms import endpoint_alarms
from stacks.endpoint_stack import synthesize
from stacks.environment_stage import ObservabilityStack
from tests.synth.deployments import one, with_endpoint, with_variant
from tests.synth.generation_cases import SCALED, generator
from tests.synth.kinds import endpoint_templates, generator_templates

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
KINDS = (
    OWN,
    SHARED,
    with_variant(OWN, "challenger"),
    with_endpoint(OWN, asynchronous=AsynchronousSpec()),
)


@cache
def chat():
    return generator(**SCALED)


def many(count):
    """Endpoints of every kind."""
    return [dataclasses.replace(KINDS[at % 4], name=f"model-{at:03}") for at in range(count)]


def body_of(endpoints):
    """The body of the dashboard, as CloudFormation gets it."""
    environment = endpoints[0].environment

    def make(app: App):
        return ObservabilityStack(
            app,
            "Observability",
            environment=environment,
            endpoints=endpoints,
        )

    (dashboard,) = synthesize(make)["Resources"].values()
    return json.loads(dashboard["Properties"]["DashboardBody"])


BODY = body_of([chat()])
EVERY_KIND = body_of(many(4))


def properties(body, kind):
    return [widget["properties"] for widget in body["widgets"] if widget["type"] == kind]


def titles(body):
    return {item["title"]: item for item in properties(body, "metric")}


def headings(body):
    return [item["markdown"].removeprefix("## ") for item in properties(body, "text")][1:]


def alarm_arns(body):
    """The ARN of every alarm that a body names."""
    return [arn for item in properties(body, "alarm") for arn in item["alarms"]] + [
        arn
        for item in properties(body, "metric")
        for arn in item.get("annotations", {}).get("alarms", ())
    ]


def alarm_names(deployments):
    return {alarm.name for item in deployments for alarm in endpoint_alarms(item)}


# --- what CloudWatch takes


def test_limits_hold_for_five_hundred_endpoints_and_the_gravest_alarms_are_listed():
    deployments = many(500)
    body = body_of(deployments)
    (selector,) = body["variables"]
    assert len(selector["values"]) == 500 and len(selector["label"]) <= 30
    assert len(body["widgets"]) <= 500 and len(json.dumps(body)) < 300_000
    assert all(len(item["alarms"]) <= 100 for item in properties(body, "alarm"))
    named = {arn.rpartition(":")[2] for arn in alarm_arns(body)}
    listed = {name for name in named if SELECTED not in name}
    assert len(listed) == 500 and listed <= alarm_names(deployments)
    assert {f"dev-model-{at:03}-no-instances" for at in range(400)} <= listed
    assert "least grave alarms" in properties(body, "text")[0]["markdown"]


def test_more_endpoints_than_a_selector_takes_are_searched_for():
    (selector,) = body_of(many(501))["variables"]
    assert "values" not in selector and selector["populateFrom"] == "EndpointName"
    assert selector["search"].startswith("{AWS/SageMaker,EndpointName,VariantName}")


@pytest.mark.parametrize("body", [BODY, EVERY_KIND])
def test_no_widget_lies_on_another(body):
    cells = [
        (widget["x"] + x, widget["y"] + y)
        for widget in body["widgets"]
        for x in range(widget["width"])
        for y in range(widget["height"])
    ]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24


# --- the selector


def test_selector_changes_every_metric_search_and_alarm():
    shown = properties(EVERY_KIND, "metric")
    assert shown and all(SELECTED in json.dumps(item) for item in shown)
    assert EVERY_KIND["variables"][0]["pattern"] == SELECTED
    assert EVERY_KIND["variables"][0]["defaultValue"] == "dev-model-000"


def test_alarms_that_the_selector_names_are_there_for_every_endpoint():
    common = next(
        item["alarms"] for item in properties(EVERY_KIND, "alarm") if "selected" in item["title"]
    )
    assert len(common) >= 4
    for deployment in many(4):
        name = f"dev-{deployment.name}"
        opened = {arn.rpartition(":")[2].replace(SELECTED, name) for arn in common}
        assert opened <= alarm_names([deployment])


def test_alarms_that_some_endpoints_lack_say_how_many_have_them():
    some = titles(body_of([OWN, with_endpoint(SHARED, latency_slo_ms=None)]))
    assert any(title.endswith("SLO, microseconds (1 of 2 endpoints)") for title in some)
    none = titles(body_of([with_endpoint(OWN, latency_slo_ms=None)]))
    assert not any("against the SLO" in title for title in none)


def test_sections_are_there_where_an_endpoint_needs_them():
    plain = ["Latency and failures", "Load", "Hosts"]
    assert headings(body_of([OWN])) == plain
    more = (
        "Models in memory (multi-model endpoints)",
        "Variants side by side",
        "Queue (asynchronous endpoints)",
    )
    for deployment, heading in zip(KINDS[1:], more, strict=True):
        assert set(headings(body_of([OWN, deployment]))) == {*plain, heading}
    generators = ["Inference components", "Text generators"]
    assert headings(BODY) == [*plain[:2], *generators, plain[2]]


def test_numbers_of_an_endpoint_change_no_dashboard():
    slower = with_endpoint(OWN, latency_slo_ms=49.0)
    assert body_of([slower, SHARED]) == body_of([OWN, SHARED])


# --- graphs


def curves(body, title):
    """Each curve's expression over metrics and their statistics, by its label."""
    graph = titles(body)[title]
    metrics = {
        options["id"]: f"{names[1]} {options.get('stat', 'Average')}"
        for *names, options in graph["metrics"]
        if "id" in options
    }
    shown = {}
    for *names, options in graph["metrics"]:
        if not names:
            text = options["expression"]
            for name, metric in metrics.items():
                text = text.replace(name, metric)
            shown[options["label"]] = text
        elif options.get("visible", True):
            shown[options["label"]] = f"{names[1]} {options.get('stat', 'Average')}"
    return shown


SEARCH = (
    'SEARCH(\'{AWS/SageMaker,EndpointName,VariantName} MetricName="ModelLatency" '
    f"EndpointName=\"{SELECTED}\"', 'p99', 60)"
)


@pytest.mark.parametrize(
    ("title", "expected"),
    [
        (
            "Latency of the model, ms",
            {
                **{name: f"ModelLatency {name} / 1000" for name in ("p50", "p95", "p99")},
                "SageMaker's overhead, average": "OverheadLatency Average / 1000",
            },
        ),
        (
            "Failed requests a minute",
            {
                "all, without an answer too": "InvocationModelErrors Sum",
                "4XX": "Invocation4XXErrors Sum",
                "5XX": "Invocation5XXErrors Sum",
            },
        ),
        (
            "Instances",
            {
                "instances that answer": (
                    "FILL(FLOOR(Invocations Sum / InvocationsPerInstance Sum + 0.5), REPEAT)"
                ),
                "instances that reported": "MemoryUtilization SampleCount",
            },
        ),
        ("Cache hits, %", {"requests whose model is in memory": "ModelCacheHit Average * 100"}),
        (
            "Variants: p99 of the model, ms",
            {"${PROP('Dim.VariantName')}": f"{SEARCH} / 1000"},
        ),
    ],
)
def test_graph_shows_what_its_title_says_in_that_unit(title, expected):
    assert curves(EVERY_KIND, title) == expected


# --- metrics of dashboards, alarms and policies

ENDPOINT, VARIANT, COMPONENT = (
    {"EndpointName"},
    {"EndpointName", "VariantName"},
    {"InferenceComponentName"},
)
ANY: tuple[str, ...] = ()
COUNTED, SIMPLE = (
    ("Sum", "SampleCount"),
    ("Average", "Sum", "Minimum", "Maximum", "SampleCount"),
)
PUBLISHED = {
    INVOCATIONS: (
        ("Invocations", (VARIANT, COMPONENT), COUNTED),
        ("InvocationsPerInstance", (VARIANT,), ("Sum",)),
        ("InvocationsPerCopy", (COMPONENT,), ("Sum",)),
        ("Invocation4XXErrors Invocation5XXErrors InvocationModelErrors", (VARIANT, COMPONENT),
         SIMPLE),
        ("MidStreamErrors", (VARIANT,), SIMPLE),
        ("ModelLatency", (VARIANT, COMPONENT), ANY),
        ("OverheadLatency", (VARIANT, COMPONENT), SIMPLE),
        ("FirstChunkModelLatency", (VARIANT,), ANY),
        ("ConcurrentRequestsPerCopy", (COMPONENT,), ANY),
        ("NoCapacityInvocationFailures", (VARIANT, COMPONENT), ANY),
        ("ModelCacheHit ModelLoadingWaitTime ModelLoadingTime", (VARIANT,), SIMPLE),
        ("ModelDownloadingTime ModelUnloadingTime", (VARIANT,), SIMPLE),
        ("ApproximateBacklogSize ApproximateBacklogSizePerInstance", (ENDPOINT,), ANY),
        ("HasBacklogWithoutCapacity ApproximateAgeOfOldestRequest", (ENDPOINT,), ANY),
        ("InvocationFailures InvocationsProcessed", (ENDPOINT, VARIANT), ANY),
        ("ExpiredRequests TimeInBacklog", (ENDPOINT, VARIANT), ANY),
    ),
    HOST: (
        ("CPUUtilization MemoryUtilization DiskUtilization", (VARIANT,), ANY),
        ("GPUUtilization GPUMemoryUtilization LoadedModelCount", (VARIANT,), ANY),
    ),
}  # fmt: skip
"""Metrics of a namespace, the sets of dimensions that each is published by, and its statistics.

No statistics: any, percentiles too. Sources: SageMaker developer guide,
monitoring-cloudwatch, async-inference-monitor. Checked 2026-11-21.
"""
FACTS = {
    (namespace, name): (dimensions, statistics)
    for namespace, rows in PUBLISHED.items()
    for names, dimensions, statistics in rows
    for name in names.split()
}


def metrics_named(node):
    """(namespace, metric, dimensions, statistic) of alarms and policies, those of math too."""
    if isinstance(node, dict):
        if {"Namespace", "MetricName", "Dimensions"} <= node.keys():
            names = {item["Name"] for item in node["Dimensions"]}
            statistic = node.get("Statistic", node.get("ExtendedStatistic"))
            yield node["Namespace"], node["MetricName"], names, statistic
        if "MetricStat" in node:
            ((*metric, _),) = metrics_named(node["MetricStat"]["Metric"])
            yield (*metric, node["MetricStat"]["Stat"])
            return
    for value in (
        node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    ):
        yield from metrics_named(value)


SEARCHED = re.compile(r"SEARCH\('\{([^,]*),([^}]*)\} MetricName=\"(\w+)\"[^']*', '(\w+)'")


def drawn_metrics(body):
    """The same of a dashboard's graphs, those of searches too."""
    for item in properties(body, "metric"):
        for *names, options in item.get("metrics", ()):
            for namespace, dimensions, metric, stat in SEARCHED.findall(str(options)):
                yield namespace, metric, set(dimensions.split(",")), stat
            if names:
                yield names[0], names[1], set(names[2::2]), options.get("stat", "Average")


def test_metrics_are_those_that_sagemaker_publishes():
    templates = (*endpoint_templates().values(), *generator_templates().values())
    found = [item for template in templates for item in metrics_named(template)]
    drawn = [item for body in (BODY, EVERY_KIND) for item in drawn_metrics(body)]
    assert len(found) > 1000 and len(drawn) > 60 and {HOST} < {item[0] for item in drawn}
    for namespace, metric, dimensions, statistic in [*found, *drawn]:
        known, statistics = FACTS[namespace, metric]
        assert dimensions in known, metric
        assert statistic in statistics or not statistics, (metric, statistic)


def test_every_alarm_of_a_text_generator_is_listed():
    names = {arn.rpartition(":")[2] for arn in alarm_arns(BODY)}
    assert {alarm.name for alarm in endpoint_alarms(chat())} <= names
