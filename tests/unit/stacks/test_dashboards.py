"""Dashboards: within CloudWatch's limits, with lines where the derivations say."""

from __future__ import annotations

import json
import re

import pytest

from onboarding.metrics import Graph, Section
from stacks.alarms.endpoint import endpoint_alarms
from stacks.dashboards.endpoint import dashboard_name
from stacks.dashboards.environment import SELECTED
from stacks.dashboards.lines import Prices, instance_prices
from stacks.dashboards.overview import promises
from stacks.dashboards.sections import MOST_DRAWN
from tests.synth.dashboards import (
    FOUR_GPUS,
    OWN,
    QUEUED,
    SHARED,
    arns,
    dashboard_metrics,
    endpoint_body,
    environment_body,
    lines,
    many,
    render_dashboard,
    there,
    titled,
    with_defaults,
    with_name,
)
from tests.synth.deployments import locked, with_endpoint, with_locks, with_scaling
from tests.synth.endpoint_cases import example
from tests.synth.kinds import endpoint_templates, generator_templates
from tests.synth.scaled import with_own_pools, with_served, with_variant
from tests.unit.stacks.published_metrics import metric_facts

pytestmark = pytest.mark.unit

BODIES = {
    "dev": environment_body(locked("dev")),
    "local": environment_body(locked("local")),
    "every kind": environment_body(many(5)),
    "many": environment_body(many(40)),
    "own": endpoint_body(OWN),
    "shared": endpoint_body(SHARED),
    "queue": endpoint_body(QUEUED),
    "four GPUs": endpoint_body(FOUR_GPUS),
    "variants": endpoint_body(
        with_variant(with_variant(OWN, "challenger"), "later", role="shadow")
    ),
    "nothing measured": endpoint_body(with_locks(OWN, benchmark=())),
}


# --- what CloudWatch takes


@pytest.mark.parametrize("name", BODIES)
def test_every_row_of_the_grid_is_full_and_none_overlap(name):
    taken = set()
    for widget in BODIES[name]["widgets"]:
        cells = {
            (widget["x"] + x, widget["y"] + y)
            for x in range(widget["width"])
            for y in range(widget["height"])
        }
        assert not cells & taken
        taken |= cells
    assert taken == {(x, y) for x in range(24) for y in range(max(y for _, y in taken) + 1)}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7])
def test_sections_of_any_size_fill_their_rows(count):
    graphs = [Graph(title=f"{number}", curves={}, unit="") for number in range(count)]
    body = render_dashboard([Section(title="t", widgets=graphs), Section(title="none", widgets=())])
    placed = body["widgets"]
    assert len(placed) == count + 1
    rows = {}
    for item in placed[1:]:
        rows[item["y"]] = rows.get(item["y"], 0) + item["width"]
    assert set(rows.values()) == {24}


def test_limits_hold_for_five_hundred_endpoints():
    deployments = many(500)
    body = environment_body(deployments)
    written = json.dumps(body, sort_keys=True)
    (selector,) = body["variables"]
    assert len(selector["values"]) == 500
    assert len(selector["label"]) <= 30
    assert len(selector["id"]) <= 32
    assert all(len(option["value"]) <= 255 for option in selector["values"])
    metrics = [len(entry["properties"].get("metrics", ())) for entry in body["widgets"]]
    assert len(body["widgets"]) <= 500 and max(metrics) <= 500 and sum(metrics) <= 2500
    assert all(
        len(widget["properties"]["alarms"]) <= 100
        for widget in body["widgets"]
        if widget["type"] == "alarm"
    )
    # A template may have a million bytes, in which the body is a text within a text.
    assert len(json.dumps({"DashboardBody": written})) < 300_000
    assert {arn for arn in arns(body) if SELECTED not in arn} <= there(deployments)


def test_more_endpoints_than_a_selector_takes_are_searched_for():
    body = environment_body(many(501))
    (selector,) = body["variables"]
    assert "values" not in selector and selector["populateFrom"] == "EndpointName"
    assert selector["search"].startswith("{AWS/SageMaker,EndpointName,VariantName}")


# --- the selector


def test_selector_changes_every_metric_search_and_alarm():
    body = environment_body(many(40))
    shown = [element for element in body["widgets"] if element["type"] == "metric"]
    assert shown and all(SELECTED in json.dumps(widget) for widget in shown)
    chosen = {**body["variables"][0], "defaultValue": "dev-model-007"}
    opened = json.dumps(with_defaults({**body, "variables": [chosen]})["widgets"])
    assert SELECTED not in opened
    assert 'EndpointName=\\"dev-model-007\\"' in opened
    assert re.search(r"alarm:dev-model-007-latency", opened)


@pytest.mark.parametrize("selected", range(5))
def test_alarms_that_the_selector_names_are_there(selected):
    deployments = many(5)
    body = environment_body(deployments)
    name = f"dev-model-{selected:03}"
    opened = with_defaults({**body, "variables": [{**body["variables"][0], "defaultValue": name}]})
    listed = titled(opened, "Its alarms")["alarms"]
    assert len(listed) >= 4 and set(listed) <= there(deployments)
    (drawn,) = titled(opened, "p99 of the model against the SLO")["annotations"]["alarms"]
    assert drawn in there(deployments)


def test_alarms_that_some_endpoints_lack_say_how_many_have_them():
    body = environment_body([OWN, with_endpoint(SHARED, latency_slo_ms=None)])
    assert titled(body, "p99 of the model against the SLO")["title"].endswith("(1 of 2 endpoints)")
    assert not any(
        "latency" in widget["properties"].get("title", "")
        for widget in environment_body([QUEUED])["widgets"]
    )


def test_sections_are_there_where_an_endpoint_needs_them():
    def headings(*deployments):
        found = [
            widget["properties"]["markdown"]
            for widget in environment_body(deployments)["widgets"]
            if widget["type"] == "text"
        ]
        return {heading.removeprefix("## ") for heading in found}

    assert "Models in memory (multi-model endpoints)" in headings(OWN, SHARED)
    assert "Models in memory (multi-model endpoints)" not in headings(OWN)
    assert "Queue (asynchronous endpoints)" in headings(OWN, QUEUED)
    assert "Variants side by side" not in headings(OWN, QUEUED)
    assert "Variants side by side" in headings(with_variant(OWN, "challenger"))


# --- lines


def test_lines_are_the_derived_values_with_the_endpoints_names():
    served = with_name(with_served(OWN, 310.25), "served")
    body = environment_body(
        [OWN, with_name(with_endpoint(SHARED, latency_slo_ms=80.0), "slow"), served]
    )
    assert lines(body, "Latency of the model") == {
        "SLO of sentence-embedder, served": 50,
        "SLO of slow": 80,
    }
    # 400 rows/s, and 310.25 requests/s; half of them is where scaling aims.
    assert lines(body, "Requests of each instance a minute") == {
        "measured capacity of sentence-embedder, slow": 24_000,
        "measured capacity of served": 18_615,
        "scaling target of sentence-embedder, slow": 12_000,
        "scaling target of served": 9_307.5,
    }


def test_no_lines_and_no_numbers_of_endpoints_where_there_are_many():
    few, lot = environment_body(many(MOST_DRAWN)), environment_body(many(MOST_DRAWN + 1))
    assert lines(few, "Latency of the model") and lines(lot, "Latency of the model") == {}
    head = lot["widgets"][0]["properties"]["markdown"]
    assert "none are drawn" in head and "roundhouse status --env dev" in head
    assert "| dev-model-000 |" in few["widgets"][0]["properties"]["markdown"]
    assert "| dev-model-000 |" not in head


def test_a_change_of_one_of_many_endpoints_changes_no_other_stack():
    before = many(MOST_DRAWN + 1)
    after = [
        with_served(with_scaling(with_endpoint(before[0], latency_slo_ms=49.0), max=9), 77.0),
        *before[1:],
    ]
    assert environment_body(before) == environment_body(after)


def test_queue_has_its_own_lines_and_no_invocations():
    body = BODIES["queue"]
    assert lines(body, "Backlog") == {"scaling target of sentence-embedder": 12_000}
    assert lines(body, "Age of the oldest request") == {"alarm": 2880}
    names = {metric.metric for metric in dashboard_metrics(body)}
    assert not {"Invocations", "InvocationsPerInstance", "OverheadLatency"} & names


OF_ENDPOINTS = {
    name: endpoint_body(item)
    for name, item in (("own", OWN), ("shared", SHARED), ("queue", QUEUED))
}


def test_own_dashboard_names_its_own_alarms_and_all_of_them():
    for name, deployment in (("own", OWN), ("shared", SHARED), ("queue", QUEUED)):
        assert set(arns(OF_ENDPOINTS[name])) == there([deployment])
    wide = OWN
    for number in range(9):
        wide = with_variant(wide, f"v{number}")
    widgets = [widget for widget in endpoint_body(wide)["widgets"] if widget["type"] == "alarm"]
    assert [len(entry["properties"]["alarms"]) for entry in widgets] == [
        100,
        len(endpoint_alarms(wide)) - 100,
    ]


def test_own_dashboard_says_what_is_deployed():
    (target,) = OWN.targets
    words = OF_ENDPOINTS["own"]["widgets"][0]["properties"]["markdown"]
    assert f"| {target.engine_key[:12]} | 20 ms, batch 8 |" in words and "1.41 to 5.63" in words
    assert dashboard_name(example({})) == "roundhouse-cloud--example"


ENDPOINT, MULTI_MODEL = endpoint_body(OWN), endpoint_body(SHARED)
ENVIRONMENT = environment_body([OWN, SHARED])
VARIANTS = endpoint_body(with_variant(OWN, "challenger"))
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
    metrics = {
        options["id"]: f"{names[1]} {options.get('stat', 'Average')}"
        for *names, options in graph["metrics"]
        if "id" in options
    }
    shown = {}
    for *names, options in graph["metrics"]:
        if not names:
            text = options["expression"]
            for name, metric in sorted(metrics.items(), key=lambda item: -len(item[0])):
                text = text.replace(name, metric)
            shown[options["label"]] = text
        elif options.get("visible", True):
            shown[options["label"]] = f"{names[1]} {options.get('stat', 'Average')}"
    return shown


@pytest.mark.parametrize(
    ("body", "title", "expected"),
    [
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
        (ENDPOINT, "Instances", INSTANCES),
        (ENDPOINT, f"Estimated cost, {HOUR}", {"estimated cost": f"{COUNT} * 1.408"}),
        (
            ENVIRONMENT,
            f"Estimated cost of all endpoints, {HOUR}",
            dict.fromkeys(("dev-sentence-embedder", "dev-text-shared"), f"{COUNT} * 1.408"),
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


POOLED = with_own_pools(OWN, "ml.g5.12xlarge", "ml.g5.xlarge")
"""7.09 and 1.408 USD an hour."""
UNPRICED = with_own_pools(OWN, "ml.g5.xlarge", "ml.g7e.2xlarge")


def graph_expressions(graph):
    return [row[-1]["expression"] for row in graph["metrics"] if "expression" in row[-1]]


def test_several_instance_types_cost_from_the_cheapest_to_the_dearest():
    assert instance_prices(POOLED, POOLED.own) == Prices(least=1.408, most=7.09, region="us-east-1")
    body = endpoint_body(POOLED)
    assert lines(body, "Estimated cost") == {"4 instances of sentence-embedder": 28.36}
    assert graph_expressions(titled(body, "Estimated cost")) == [
        "FILL(FLOOR(requests / each + 0.5), REPEAT) * 7.09"
    ]
    assert "| 1.41 to 7.09 | 1 to 4 | 1.41 to 28.36 |" in promises([POOLED], counts=True)


def test_type_without_a_price_leaves_the_cost_unknown():
    assert instance_prices(UNPRICED, UNPRICED.own) is None
    assert "Estimated cost" not in str(endpoint_body(UNPRICED))
    assert promises([UNPRICED], counts=True).endswith("| not known | 1 to 4 | not known |")


# --- metrics of dashboards, alarms and policies


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


def of_bodies():
    for body in BODIES.values():
        for item in dashboard_metrics(body):
            yield item.namespace, item.metric, set(item.dimensions), item.statistic


def test_metrics_are_those_that_sagemaker_publishes():
    templates = (*endpoint_templates().values(), *generator_templates().values())
    found = [*of_bodies(), *(item for found in templates for item in metrics_named(found))]
    assert len(found) > 1000
    for namespace, metric, dimensions, statistic in found:
        facts = metric_facts(namespace, metric)
        assert facts is not None and dimensions in map(set, facts.dimensions), metric
        assert statistic in facts.statistics or not facts.statistics, (metric, statistic)
        assert facts.percentiles or not statistic.startswith("p"), (metric, statistic)
