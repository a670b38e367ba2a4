"""CloudWatch's own tables of how an alarm treats missing data, row by row."""

import pytest

from local_cloud.cloudwatch.evaluation import Rule, verdict

pytestmark = pytest.mark.unit
KEPT = "the present state"
TREATMENTS = ("missing", "ignore", "breaching", "notBreaching")
THREE_OF_THREE = [
    ("0 - X - X", "OK", "OK", "OK", "OK"),
    ("0 - - - -", "OK", "OK", "OK", "OK"),
    ("- - - - -", "INSUFFICIENT_DATA", KEPT, "ALARM", "OK"),
    ("0 X X - X", "ALARM", "ALARM", "ALARM", "ALARM"),
    ("- - X - -", "ALARM", KEPT, "ALARM", "OK"),
]
TWO_OF_THREE = [
    ("0 - X - X", "ALARM", "ALARM", "ALARM", "ALARM"),
    ("0 0 X 0 X", "ALARM", "ALARM", "ALARM", "ALARM"),
    ("0 - X - -", "OK", "OK", "ALARM", "OK"),
    ("- - - - 0", "OK", "OK", "ALARM", "OK"),
    ("- - - X -", "ALARM", KEPT, "ALARM", "OK"),
]
ROWS = [
    (needed, *row) for needed, table in ((3, THREE_OF_THREE), (2, TWO_OF_THREE)) for row in table
]


def rule(needed=3, missing="missing", comparison="GreaterThanThreshold"):
    return Rule(
        comparison=comparison,
        threshold=10,
        evaluation_periods=3,
        datapoints_to_alarm=needed,
        missing=missing,
    )


def points(text):
    return [{"0": 5.0, "X": 20.0, "-": None}[word] for word in text.split()]


@pytest.mark.parametrize(
    ("needed", "row", "states"), [(needed, row, states) for needed, row, *states in ROWS]
)
def test_state_is_as_the_tables_say(needed, row, states):
    for missing, expected in zip(TREATMENTS, states, strict=True):
        for present in ("OK", "INSUFFICIENT_DATA"):
            found = verdict(rule(needed, missing), points(row), present).state
            assert found == (present if expected is KEPT else expected), (missing, present)


@pytest.mark.parametrize("row", ["- - - - X", "- - - X -"])
def test_a_breach_too_young_does_not_alarm_yet(row):
    assert verdict(rule(), points(row), "INSUFFICIENT_DATA").state == "INSUFFICIENT_DATA"


@pytest.mark.parametrize(
    ("comparison", "value", "state"),
    [
        ("GreaterThanThreshold", 10, "OK"),
        ("GreaterThanOrEqualToThreshold", 10, "ALARM"),
        ("LessThanThreshold", 10, "OK"),
        ("LessThanOrEqualToThreshold", 10, "ALARM"),
    ],
)
def test_the_threshold_itself_breaches_where_it_is_included(comparison, value, state):
    assert verdict(rule(comparison=comparison), [value] * 5, "OK").state == state


def test_reason_tells_datapoints_and_threshold():
    found = verdict(rule(), points("0 0 X X X"), "OK")
    assert found.values == (20.0, 20.0, 20.0)
    assert found.reason == (
        "Threshold Crossed: 3 out of the last 3 datapoints [20, 20, 20] were greater than the "
        "threshold (10) (minimum 3 for ALARM)."
    )
