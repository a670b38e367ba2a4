"""An endpoint's own dashboard: in its own stack, with its own alarms."""

from __future__ import annotations

import json

import pytest

from onboarding.hosting_spec import MetricsSpec
from stacks.alarms.properties import alarms
from stacks.dashboards.endpoint import dashboard_name, endpoint_dashboard, endpoint_dashboard_body
from template_rules.findings import own_findings
from template_rules.templates import Template
from tests.synth.dashboards import OWN, QUEUED, SHARED, arns, there, titled
from tests.synth.deployments import with_endpoint
from tests.synth.endpoint_cases import (
    BESIDE,
    MODEL,
    QUEUE,
    beside,
    endpoint_settings,
    example,
    template,
)
from tests.synth.scaled import with_variant

pytestmark = pytest.mark.unit

BODIES = {
    name: endpoint_dashboard_body(item)
    for name, item in (("own", OWN), ("shared", SHARED), ("queue", QUEUED))
}


def test_own_dashboard_is_there_on_request_in_the_endpoints_own_stack():
    found = template({MODEL: endpoint_settings("dashboard: true")})["Resources"]["Dashboard"]
    assert found["Properties"]["DashboardName"] == "roundhouse-cloud--example"
    body = json.loads(found["Properties"]["DashboardBody"])
    assert body["widgets"] and "variables" not in body
    assert endpoint_dashboard(OWN) == {}


def test_own_dashboard_names_its_own_alarms_and_all_of_them():
    for name, deployment in (("own", OWN), ("shared", SHARED), ("queue", QUEUED)):
        assert set(arns(BODIES[name])) == there([deployment])
    wide = OWN
    for number in range(9):
        wide = with_variant(wide, f"v{number}")
    widgets = [
        widget for widget in endpoint_dashboard_body(wide)["widgets"] if widget["type"] == "alarm"
    ]
    assert [len(entry["properties"]["alarms"]) for entry in widgets] == [
        100,
        len(alarms(wide)) - 100,
    ]


def test_own_dashboard_passes_the_rules_beside_its_endpoint(tmp_path):
    changes = {
        MODEL: endpoint_settings("dashboard: true"),
        BESIDE: beside("{joins: example, role: shadow}"),
    }
    (tmp_path / "queue").mkdir()
    queue = template({MODEL: endpoint_settings(QUEUE, "dashboard: true")})
    for found in (template(changes), queue):
        assert "Dashboard" in found["Resources"]
        assert list(own_findings(Template("t.json", found))) == []


def test_own_dashboard_says_what_is_deployed():
    (target,) = OWN.targets
    words = BODIES["own"]["widgets"][0]["properties"]["markdown"]
    assert f"| {target.engine_key[:12]} | 20 ms, batch 8 |" in words and "1.41 to 5.63" in words
    assert dashboard_name(example({})) == "roundhouse-cloud--example"


def test_end_to_end_latency_is_the_sum_of_both_averages_on_endpoints_with_metrics():
    body = endpoint_dashboard_body(with_endpoint(OWN, metrics=MetricsSpec()))
    row = titled(body, "Latency of the model")["metrics"][-1][0]
    assert row["expression"] == "(model_us + overhead_us) / 1000"
    assert "end to end" not in json.dumps(BODIES["own"])
