"""Alarms on what the scheduled comparison of captures finds."""

from __future__ import annotations

import pytest

from stacks.alarms.properties import alarms, rollback_alarm_ids
from tests.synth.endpoint_cases import (
    CAPTURE,
    CHECKED,
    MODEL,
    beside,
    endpoint_settings,
    endpoints,
    example,
)

pytestmark = pytest.mark.unit


def test_accuracy_alarms_below_the_budget_and_drift_above_its_limit():
    deployment = example({MODEL: endpoint_settings(CHECKED)})
    found = alarms(deployment)
    accuracy, inputs = found["CapturedAccuracy"], found["CapturedInputs"]
    (target,) = deployment.targets
    assert accuracy["Threshold"] == target.model.accuracy.budget.mean
    assert (accuracy["MetricName"], accuracy["Statistic"]) == ("AccuracyUpperBound", "Minimum")
    assert accuracy["ComparisonOperator"] == "LessThanThreshold"
    assert (inputs["MetricName"], inputs["Threshold"]) == ("InputDrift", 0.25)
    assert {item["TreatMissingData"] for item in (accuracy, inputs)} == {"missing"}
    assert not {"CapturedAccuracy", "CapturedInputs"} & set(rollback_alarm_ids(deployment))


def test_capture_without_a_check_and_shadows_have_none():
    assert "CapturedAccuracy" not in alarms(example({MODEL: endpoint_settings(CAPTURE)}))
    shadow = beside("{joins: example, role: shadow}", "shadow")
    changes = {MODEL: endpoint_settings(CHECKED), "models/shadow.yaml": shadow}
    captured = [name for name in alarms(endpoints(changes)["example"]) if "Captured" in name]
    assert captured == ["CapturedAccuracy", "CapturedInputs"]
