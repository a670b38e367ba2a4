"""Our dashboards' own expressions, computed.

What a graph shows is what its title says, in that unit.
"""

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
AT = END - 600


def values(body, title, metrics=METRICS):
    """Each curve's value ten minutes before the end, by its label."""
    (graph,) = (
        widget["properties"]
        for widget in body["widgets"]
        if widget["properties"].get("title") == title
    )
    return {curve.label: curve.points.get(AT) for curve in curves(graph, metrics, END)}


def raw(name, statistic, endpoint="dev-sentence-embedder", namespace="AWS/SageMaker"):
    dimensions = {"EndpointName": endpoint, "VariantName": "AllTraffic"}
    return METRICS.read(
        Question(namespace=namespace, name=name, statistic=statistic, dimensions=dimensions), 60.0
    )[AT]


@pytest.mark.parametrize(
    "body", [selected_body(dashboard_body([OWN, SHARED])), endpoint_dashboard_body(OWN)]
)
def test_latencies_are_milliseconds(body):
    assert values(body, "Latency of the model, ms") == {
        **{name: raw("ModelLatency", name) / 1000 for name in ("p50", "p95", "p99")},
        "SageMaker's overhead, average": raw("OverheadLatency", "Average") / 1000,
    }


def test_failures_are_percent_and_counts():
    body = endpoint_dashboard_body(OWN)
    assert values(body, "Failed requests, %")["5XX"] == pytest.approx(
        100 * raw("Invocation5XXErrors", "Sum") / raw("Invocations", "Sum")
    )
    assert values(body, "Failed requests a minute")["4XX"] == raw("Invocation4XXErrors", "Sum")


def test_cost_is_instances_times_the_price_of_one():
    body = selected_body(dashboard_body([OWN, SHARED]))
    assert values(body, "Instances") == {
        "instances that answer": 4.0,
        "instances that reported": 4.0,
    }
    assert values(
        body, "Estimated cost of all endpoints, USD an hour (prices of us-east-1)"
    ) == pytest.approx({"dev-sentence-embedder": 4 * 1.4084, "dev-text-shared": 2 * 1.4084})
    assert values(
        endpoint_dashboard_body(OWN), "Estimated cost, USD an hour (prices of us-east-1)"
    ) == pytest.approx({"estimated cost": 5.6336})


def test_cache_hits_are_percent_and_waits_milliseconds():
    body = endpoint_dashboard_body(SHARED)
    assert values(body, "Cache hits, %") == {"requests whose model is in memory": 100.0}
    (graph,) = (
        widget["properties"]
        for widget in body["widgets"]
        if widget["properties"].get("title") == "Loading, ms on average"
    )
    (load,) = (curve for curve in curves(graph, METRICS, END) if curve.label == "load")
    assert all(2_000 < value < 3_000 for value in load.points.values()) and load.points


def test_variants_stand_side_by_side():
    several = with_variant(OWN, "challenger")
    metrics = SyntheticMetrics.of([several], END - MINUTES * 60)
    body = endpoint_dashboard_body(several)
    p99 = values(body, "Variants: p99 of the model, ms", metrics)
    assert set(p99) == {"AllTraffic", "challenger"} and all(
        20 < value < 200 for value in p99.values()
    )
    share = values(body, "Variants: failed requests, %", metrics)
    assert all(1 < value < 10 for value in share.values())


def test_minute_without_a_request_repeats_the_count():
    class Quiet:
        start = 0.0

        def all_metrics(self):
            return []

        def read(self, question, period):
            found = {
                "Invocations": {0.0: 90.0, 60.0: 0.0},
                "InvocationsPerInstance": {0.0: 30.0, 60.0: 0.0},
            }
            return found.get(question.name, {})

    (graph,) = (
        widget["properties"]
        for widget in endpoint_dashboard_body(OWN)["widgets"]
        if widget["properties"].get("title") == "Instances"
    )
    assert curves(graph, Quiet(), 180.0)[0].points == {0.0: 3.0, 60.0: 3.0, 120.0: 3.0}
