"""A dashboard opened: selector, curves, searches, stacks."""

from __future__ import annotations

import pytest

from local_cloud.cloudwatch.series import Found, MathError
from roundhouse.reports.dashboards.body import (
    Curve,
    alarm_query,
    curves,
    selected_body,
    stacked,
)
from roundhouse.reports.dashboards.synthetic import SyntheticMetrics

pytestmark = pytest.mark.unit


class Stand:
    """Metrics of two variants: the own one's value is 10 a minute, the other's 3.

    The statistic's length is added.
    """

    start = 0.0

    def all_metrics(self):
        return [
            Found(
                namespace="AWS/SageMaker",
                name="Invocations",
                dimensions={"EndpointName": "e", "VariantName": name},
            )
            for name in ("a", "b")
        ]

    def read(self, question, period):
        value = {"a": 10.0, "b": 3.0}.get(question.dimensions.get("VariantName"))
        return {} if value is None else {at * period: value * (period / 60) for at in range(2)}


def of(variant, **options):
    return [
        "AWS/SageMaker",
        "Invocations",
        "EndpointName",
        "e",
        "VariantName",
        variant,
        {"stat": "Sum", **options},
    ]


def draw(*rows, **properties):
    found = curves({"metrics": rows, "period": 60, **properties}, Stand(), 120.0)
    return {curve.label: dict(curve.points) for curve in found}


def test_selector_stands_in_every_text():
    body = {
        "variables": [{"type": "pattern", "pattern": "SELECTED", "defaultValue": "first"}],
        "widgets": [
            {
                "properties": {
                    "metrics": [["n", "m", "EndpointName", "SELECTED"]],
                    "annotations": {"alarms": ["arn:SELECTED-p"]},
                }
            }
        ],
    }
    assert selected_body(body)["widgets"][0]["properties"]["metrics"] == [
        ["n", "m", "EndpointName", "first"]
    ]
    assert selected_body(body, "second")["widgets"][0]["properties"]["annotations"] == {
        "alarms": ["arn:second-p"]
    }


def test_rows_are_statistics_and_expressions_over_them():
    shown = draw(
        of("a", id="a", visible=False),
        of("b", id="b", label="other"),
        [{"expression": "a / b + 1", "label": "sum", "id": "e"}],
        [{"expression": "7", "label": "always", "id": "c"}],
    )
    assert list(shown) == ["other", "sum", "always"]
    assert shown["other"] == {0.0: 3.0, 60.0: 3.0} and shown["always"] == {0.0: 7.0, 60.0: 7.0}
    assert shown["sum"] == pytest.approx({0.0: 10 / 3 + 1, 60.0: 10 / 3 + 1})


def test_search_finds_every_variant_with_its_name():
    search = (
        'SEARCH(\'{AWS/SageMaker,EndpointName,VariantName} MetricName="Invocations" '
        "EndpointName=\"e\"', 'Sum', 60) / 10"
    )
    shown = draw([{"expression": search, "label": "of ${PROP('Dim.VariantName')}", "id": "e"}])
    assert shown == {"of a": {0.0: 1.0, 60.0: 1.0}, "of b": pytest.approx({0.0: 0.3, 60.0: 0.3})}


def test_period_is_the_rows_own_or_the_graphs():
    assert draw(of("a", label="own", period=120), of("a", label="graph"))["own"] == {
        0.0: 20.0,
        120.0: 20.0,
    }
    assert draw(of("a", label="graph"), period=300)["graph"] == {0.0: 50.0, 300.0: 50.0}


def test_refuses_an_expression_over_what_is_not_there():
    with pytest.raises(MathError, match="unknown metric id 'missing'"):
        draw([{"expression": "missing * 2", "label": "x", "id": "e"}])


def test_stacked_curves_lie_on_each_other():
    first, second = (
        Curve(label="a", points={0.0: 1.0, 60.0: 2.0}),
        Curve(label="b", points={60.0: 5.0}),
    )
    assert [dict(item.points) for item in stacked([first, second])] == [
        {0.0: 1.0, 60.0: 2.0},
        {0.0: 1.0, 60.0: 7.0},
    ]


def test_alarm_watches_its_own_metric_or_the_one_returned():
    plain = {
        "Namespace": "n",
        "MetricName": "m",
        "Dimensions": [],
        "Period": 60,
        "ExtendedStatistic": "p99",
    }
    (query,), watched = alarm_query(plain)
    assert query["MetricStat"]["Stat"] == "p99" and query["Id"] == watched
    queries = [{"Id": "a", "ReturnData": False}, {"Id": "b", "Expression": "a"}]
    assert alarm_query({"Metrics": queries}) == (queries, "b")


def test_no_metric_has_no_value():
    assert SyntheticMetrics(start=0.0, days={}).all_metrics() == []
