"""A dashboard's graph shows what its title says, in that unit: its expressions, by title."""

from __future__ import annotations

import pytest

from stacks.dashboards.endpoint import endpoint_dashboard_body
from stacks.dashboards.environment import dashboard_body
from tests.synth.deployments import one
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

OWN, SHARED = one("dev", "sentence-embedder"), one("dev", "text-shared")
ENDPOINT, MULTI_MODEL = endpoint_dashboard_body(OWN), endpoint_dashboard_body(SHARED)
ENVIRONMENT = dashboard_body([OWN, SHARED])
VARIANTS = endpoint_dashboard_body(with_variant(OWN, "challenger"))
LATENCY = {
    **{name: f"ModelLatency {name} / 1000" for name in ("p50", "p95", "p99")},
    "SageMaker's overhead, average": "OverheadLatency Average / 1000",
}
"""SageMaker's latencies are microseconds."""
COUNT = "FILL(FLOOR(Invocations Sum / InvocationsPerInstance Sum + 0.5), REPEAT)"
INSTANCES = {
    "instances that answer": COUNT,
    "instances that reported": "MemoryUtilization SampleCount",
}
FAILED = {
    "all, without an answer too": "InvocationModelErrors",
    "4XX": "Invocation4XXErrors",
    "5XX": "Invocation5XXErrors",
}
HOUR = "USD an hour (prices of us-east-1)"
SEARCH = (
    'SEARCH(\'{{AWS/SageMaker,EndpointName,VariantName}} MetricName="{}" '
    "EndpointName=\"dev-sentence-embedder\"', '{}', 60)"
)
NAMED = "${PROP('Dim.VariantName')}"


def curves(body, title):
    """Each curve's expression over metrics and their statistics, by its label."""
    every = [widget["properties"] for widget in body["widgets"]]
    (graph,) = (properties for properties in every if properties.get("title") == title)
    metrics, shown = {}, {}
    for *names, options in graph["metrics"]:
        if not names:
            text = options["expression"]
            for name, metric in sorted(metrics.items(), key=lambda item: -len(item[0])):
                text = text.replace(name, metric)
            shown[options["label"]] = text
        elif options.get("visible", True):
            shown[options["label"]] = f"{names[1]} {options['stat']}"
        else:
            metrics[options["id"]] = f"{names[1]} {options['stat']}"
    return shown


@pytest.mark.parametrize(
    ("body", "title", "expected"),
    [
        (ENVIRONMENT, "Latency of the model, ms", LATENCY),
        (ENDPOINT, "Latency of the model, ms", LATENCY),
        (
            ENDPOINT,
            "Failed requests, %",
            {label: f"{metric} Average * 100" for label, metric in FAILED.items()},
        ),
        (
            ENDPOINT,
            "Failed requests a minute",
            {label: f"{metric} Sum" for label, metric in FAILED.items()},
        ),
        (ENVIRONMENT, "Instances", INSTANCES),
        (ENDPOINT, "Instances", INSTANCES),
        (ENDPOINT, f"Estimated cost, {HOUR}", {"estimated cost": f"{COUNT} * 1.4084"}),
        (
            ENVIRONMENT,
            f"Estimated cost of all endpoints, {HOUR}",
            dict.fromkeys(("dev-sentence-embedder", "dev-text-shared"), f"{COUNT} * 1.4084"),
        ),
        (
            MULTI_MODEL,
            "Cache hits, %",
            {"requests whose model is in memory": "ModelCacheHit Average * 100"},
        ),
        (
            MULTI_MODEL,
            "Loading, ms on average",
            {
                "wait of a request": "ModelLoadingWaitTime Average / 1000",
                "download": "ModelDownloadingTime Average / 1000",
                "load": "ModelLoadingTime Average / 1000",
                "unload": "ModelUnloadingTime Average / 1000",
            },
        ),
        (
            VARIANTS,
            "Variants: p99 of the model, ms",
            {NAMED: f"{SEARCH.format('ModelLatency', 'p99')} / 1000"},
        ),
        (
            VARIANTS,
            "Variants: failed requests, %",
            {NAMED: f"{SEARCH.format('InvocationModelErrors', 'Average')} * 100"},
        ),
    ],
)
def test_graph_shows_what_its_title_says_in_that_unit(body, title, expected):
    assert curves(body, title) == expected
