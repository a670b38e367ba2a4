"""Our dashboards' own expressions: a graph shows what its title says, in that unit."""

from __future__ import annotations

import pytest

from local_cloud.cloudwatch.series import Question
from roundhouse.reports.dashboards.body import curves, selected_body
from roundhouse.reports.dashboards.pictures import END
from roundhouse.reports.dashboards.synthetic import MINUTES, SyntheticMetrics
from stacks.dashboards.endpoint import endpoint_dashboard_body
from stacks.dashboards.environment import dashboard_body
from tests.synth.deployments import one
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
METRICS = SyntheticMetrics.of([OWN, SHARED], END - MINUTES * 60)
ENVIRONMENT = selected_body(dashboard_body([OWN, SHARED]))
AT = END - 600


def graph_curves(body, title, metrics=METRICS, end=END):
    every = [widget["properties"] for widget in body["widgets"]]
    (graph,) = (properties for properties in every if properties.get("title") == title)
    return {curve.label: curve.points for curve in curves(graph, metrics, end)}


def values(body, title, metrics=METRICS):
    """Each curve's value ten minutes before the end, by its label."""
    return {label: points.get(AT) for label, points in graph_curves(body, title, metrics).items()}


def raw(name, statistic):
    dimensions = {"EndpointName": "dev-sentence-embedder", "VariantName": "AllTraffic"}
    fields = {"namespace": "AWS/SageMaker", "name": name, "statistic": statistic}
    return METRICS.read(Question(dimensions=dimensions, **fields), 60.0)[AT]


@pytest.mark.parametrize("body", [ENVIRONMENT, endpoint_dashboard_body(OWN)])
def test_latencies_are_milliseconds(body):
    assert values(body, "Latency of the model, ms") == {
        **{name: raw("ModelLatency", name) / 1000 for name in ("p50", "p95", "p99")},
        "SageMaker's overhead, average": raw("OverheadLatency", "Average") / 1000,
    }


def test_failures_are_percent_and_counts():
    body = endpoint_dashboard_body(OWN)
    percent = 100 * raw("Invocation5XXErrors", "Sum") / raw("Invocations", "Sum")
    assert values(body, "Failed requests, %")["5XX"] == pytest.approx(percent)
    assert values(body, "Failed requests a minute")["4XX"] == raw("Invocation4XXErrors", "Sum")


PRICES = "USD an hour (prices of us-east-1)"


@pytest.mark.parametrize(
    ("body", "title", "expected"),
    [
        (ENVIRONMENT, "Instances", {"instances that answer": 4, "instances that reported": 4}),
        (
            ENVIRONMENT,
            f"Estimated cost of all endpoints, {PRICES}",
            {"dev-sentence-embedder": 4 * 1.4084, "dev-text-shared": 2 * 1.4084},
        ),
        (endpoint_dashboard_body(OWN), f"Estimated cost, {PRICES}", {"estimated cost": 5.6336}),
    ],
)
def test_cost_is_instances_times_the_price_of_one(body, title, expected):
    assert values(body, title) == pytest.approx(expected)


def test_cache_hits_are_percent_and_waits_milliseconds():
    body = endpoint_dashboard_body(SHARED)
    assert values(body, "Cache hits, %") == {"requests whose model is in memory": 100.0}
    load = graph_curves(body, "Loading, ms on average")["load"]
    assert load and all(2_000 < value < 3_000 for value in load.values())


def test_variants_stand_side_by_side():
    several = with_variant(OWN, "challenger")
    metrics = SyntheticMetrics.of([several], END - MINUTES * 60)
    body = endpoint_dashboard_body(several)
    p99 = values(body, "Variants: p99 of the model, ms", metrics)
    assert set(p99) == {"AllTraffic", "challenger"}
    assert all(20 < value < 200 for value in p99.values())
    share = values(body, "Variants: failed requests, %", metrics)
    assert all(1 < value < 10 for value in share.values())


def test_minute_without_a_request_repeats_the_count():
    class Quiet:
        start = 0.0

        def all_metrics(self):
            return []

        def read(self, question, period):
            counts = {"Invocations": 90.0, "InvocationsPerInstance": 30.0}
            return {0.0: counts[question.name], 60.0: 0.0} if question.name in counts else {}

    answering, *_ = graph_curves(endpoint_dashboard_body(OWN), "Instances", Quiet(), 180.0).values()
    assert answering == {0.0: 3.0, 60.0: 3.0, 120.0: 3.0}
