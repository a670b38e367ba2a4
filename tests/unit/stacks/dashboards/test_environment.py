"""Dashboards.

Within CloudWatch's limits, of metrics that exist, with lines where the derivations say.
"""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from onboarding.metrics import METRICS, metric_facts
from stacks.dashboards.endpoint import endpoint_dashboard_body
from stacks.dashboards.environment import MOST_DRAWN, SELECTED, dashboard_body
from stacks.dashboards.widget import laid_out, with_headings
from template_rules.findings import own_findings
from template_rules.templates import Template
from tests.synth.dashboards import (
    FOUR_GPUS,
    OWN,
    QUEUED,
    SHARED,
    arns,
    dashboard_metrics,
    expressions,
    lines,
    many,
    there,
    titled,
    with_defaults,
    with_name,
)
from tests.synth.deployments import locked, with_endpoint, with_locks, with_scaling
from tests.synth.scaled import with_own, with_served, with_variant

pytestmark = pytest.mark.unit


def body_template(body, *others):
    """A template with the dashboard of a body, and the resources of others."""
    resources = {
        "Board": {
            "Type": "AWS::CloudWatch::Dashboard",
            "Properties": {"DashboardBody": json.dumps(body)},
        }
    }
    return Template(
        "t.json",
        {
            "Resources": {
                **resources,
                **{key: value for other in others for key, value in other.items()},
            }
        },
    )


BODIES = {
    "dev": dashboard_body(locked("dev")),
    "local": dashboard_body(locked("local")),
    "every kind": dashboard_body(many(5)),
    "many": dashboard_body(many(40)),
    "own": endpoint_dashboard_body(OWN),
    "shared": endpoint_dashboard_body(SHARED),
    "queue": endpoint_dashboard_body(QUEUED),
    "four GPUs": endpoint_dashboard_body(FOUR_GPUS),
    "variants": endpoint_dashboard_body(
        with_variant(with_variant(OWN, "challenger"), "later", role="shadow")
    ),
    "nothing measured": endpoint_dashboard_body(with_locks(OWN, benchmark=())),
}


# --- what CloudWatch takes


@pytest.mark.parametrize("name", BODIES)
def test_no_rule_says_anything(name):
    assert list(own_findings(body_template(BODIES[name]))) == []


@pytest.mark.parametrize("name", BODIES)
def test_metrics_exist_with_their_dimensions_and_statistics(name):
    found = list(dashboard_metrics(BODIES[name]))
    assert len(found) > 15
    for metric in found:
        facts = metric_facts(metric.namespace, metric.metric)
        assert facts is not None and metric.namespace in METRICS, metric
        assert set(metric.dimensions) in map(set, facts.dimensions), metric
        assert metric.statistic in facts.statistics or not facts.statistics, metric
        assert facts.percentiles or not metric.statistic.startswith("p"), metric


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
    graphs = [{"type": "metric", "width": 8, "height": 6} for _ in range(count)]
    placed = laid_out(with_headings([("t", graphs), ("none", ())]))
    assert len(placed) == count + 1
    rows = {}
    for item in placed[1:]:
        rows[item["y"]] = rows.get(item["y"], 0) + item["width"]
    assert set(rows.values()) == {24}


def test_limits_hold_for_five_hundred_endpoints():
    deployments = many(500)
    body = dashboard_body(deployments)
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
    body = dashboard_body(many(501))
    (selector,) = body["variables"]
    assert "values" not in selector and selector["populateFrom"] == "EndpointName"
    assert selector["search"].startswith("{AWS/SageMaker,EndpointName,VariantName}")


# --- the selector


def test_selector_changes_every_metric_search_and_alarm():
    body = dashboard_body(many(40))
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
    body = dashboard_body(deployments)
    name = f"dev-model-{selected:03}"
    opened = with_defaults({**body, "variables": [{**body["variables"][0], "defaultValue": name}]})
    listed = titled(opened, "Its alarms")["alarms"]
    assert len(listed) >= 4 and set(listed) <= there(deployments)
    (drawn,) = titled(opened, "p99 of the model against the SLO")["annotations"]["alarms"]
    assert drawn in there(deployments)


def test_alarms_that_some_endpoints_lack_say_how_many_have_them():
    body = dashboard_body([OWN, with_endpoint(SHARED, latency_slo_ms=None)])
    assert titled(body, "p99 of the model against the SLO")["title"].endswith("(1 of 2 endpoints)")
    assert not any(
        "latency" in widget["properties"].get("title", "")
        for widget in dashboard_body([QUEUED])["widgets"]
    )


def test_sections_are_there_where_an_endpoint_needs_them():
    def headings(*deployments):
        found = [
            widget["properties"]["markdown"]
            for widget in dashboard_body(deployments)["widgets"]
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
    body = dashboard_body(
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
    few, lot = dashboard_body(many(MOST_DRAWN)), dashboard_body(many(MOST_DRAWN + 1))
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
    assert dashboard_body(before) == dashboard_body(after)


def test_own_dashboard_has_every_line_of_the_endpoint():
    body = BODIES["own"]
    assert lines(body, "Latency of the model") == {
        "SLO of sentence-embedder": 50,
        "drift from the benchmark of sentence-embedder": 46,
    }
    assert lines(body, "Requests of each instance a minute") == {
        "measured capacity of sentence-embedder": 24_000,
        "scaling target of sentence-embedder": 12_000,
    }
    assert lines(body, "Instances") == {
        "fewest of sentence-embedder": 1,
        "most of sentence-embedder": 4,
    }
    assert lines(body, "Estimated cost") == {"4 instances of sentence-embedder": 5.6336}
    assert lines(body, "GPU use") == {"scaling target of sentence-embedder": 70}
    assert lines(body, "GPU memory") == {"memory alarm": 90}
    assert lines(body, "Host memory and disk") == {"memory alarm": 90, "disk alarm": 85}


def test_gpu_use_is_of_one_gpu():
    assert "gpus / 4" in expressions(BODIES["four GPUs"])
    # 70 % of four is the policy's 280; of one it is 70.
    assert lines(BODIES["four GPUs"], "GPU use") == {"scaling target of sentence-embedder": 70}
    assert not any("gpus /" in expression for expression in expressions(BODIES["own"]))


def test_several_counts_of_gpus_are_distinguished():
    rows = titled(dashboard_body([OWN, with_name(FOUR_GPUS, "four")]), "GPU use")["metrics"]
    explanation = {
        row[-1]["expression"]: row[-1]["label"] for row in rows if "expression" in row[-1]
    }
    assert explanation == {
        "gpus / 1": "average, if it has 1 GPU",
        "gpus / 4": "average, if it has 4 GPUs",
    }


def test_pools_with_other_gpus_have_no_line():
    pool = OWN.own.pools[0]
    larger = dataclasses.replace(
        pool, instance_type=pool.instance_type.model_copy(update={"gpu_count": 4})
    )
    assert lines(endpoint_dashboard_body(with_own(OWN, pools=(pool, larger))), "GPU use") == {}


def test_nothing_measured_draws_no_capacity():
    body = BODIES["nothing measured"]
    assert lines(body, "Requests of each instance a minute") == {}
    assert "not measured" in body["widgets"][0]["properties"]["markdown"]


def test_queue_shows_only_what_it_publishes():
    rows = [
        row
        for widget in BODIES["queue"]["widgets"]
        for row in widget["properties"].get("metrics", [])
        if len(row) > 1
    ]
    names = {row[1] for row in rows}
    assert {"InvocationFailures", "Invocation5XXErrors", "TimeInBacklog"} <= names
    assert (
        not {"InvocationModelErrors", "Invocations", "InvocationsPerInstance", "OverheadLatency"}
        & names
    )
    assert {row[-1]["stat"] for row in rows if row[1] == "TimeInBacklog"} == {"Average"}


def test_queue_has_its_own_lines_and_no_invocations():
    body = BODIES["queue"]
    assert lines(body, "Backlog") == {"scaling target of sentence-embedder": 12_000}
    assert lines(body, "Age of the oldest request") == {"alarm": 2880}
    names = {metric.metric for metric in dashboard_metrics(body)}
    assert not {"Invocations", "InvocationsPerInstance", "OverheadLatency"} & names
