"""A dashboard opened: selector, curves, searches, stacks."""

from __future__ import annotations

import pytest

from local_cloud.cloudwatch.series import Found, MathError
from roundhouse.reports.dashboards.body import Curve, alarm_query, curves, selected_body, stacked

pytestmark = pytest.mark.unit


class TwoVariants:
    """Metrics of two variants: 10 a minute of variant a, 3 of variant b."""

    start = 0.0

    def all_metrics(self):
        dimensions = [{"EndpointName": "e", "VariantName": name} for name in ("a", "b")]
        return [
            Found(namespace="AWS/SageMaker", name="Invocations", dimensions=item)
            for item in dimensions
        ]

    def read(self, question, period):
        value = {"a": 10.0, "b": 3.0}.get(question.dimensions.get("VariantName"))
        return {} if value is None else {at * period: value * (period / 60) for at in range(2)}


def row(variant, **options):
    dimensions = ("EndpointName", "e", "VariantName", variant)
    return ["AWS/SageMaker", "Invocations", *dimensions, {"stat": "Sum", **options}]


def draw(*rows, **properties):
    drawn = curves({"metrics": rows, "period": 60, **properties}, TwoVariants(), 120.0)
    return {curve.label: dict(curve.points) for curve in drawn}


@pytest.mark.parametrize(("selected", "name"), [(None, "first"), ("second", "second")])
def test_selector_stands_in_every_text(selected, name):
    metrics, alarms = [["n", "m", "EndpointName", "SELECTED"]], {"alarms": ["arn:SELECTED-p"]}
    body = {
        "variables": [{"type": "pattern", "pattern": "SELECTED", "defaultValue": "first"}],
        "widgets": [{"properties": {"metrics": metrics, "annotations": alarms}}],
    }
    (widget,) = selected_body(body, selected)["widgets"]
    assert widget["properties"]["metrics"] == [["n", "m", "EndpointName", name]]
    assert widget["properties"]["annotations"] == {"alarms": [f"arn:{name}-p"]}


def test_rows_are_statistics_and_expressions_over_them():
    shown = draw(
        row("a", id="a", visible=False),
        row("b", id="b", label="other"),
        [{"expression": "a / b + 1", "label": "sum", "id": "e"}],
        [{"expression": "7", "label": "always", "id": "c"}],
    )
    assert list(shown) == ["other", "sum", "always"]
    assert shown["other"] == {0.0: 3.0, 60.0: 3.0} and shown["always"] == {0.0: 7.0, 60.0: 7.0}
    assert shown["sum"] == pytest.approx({0.0: 10 / 3 + 1, 60.0: 10 / 3 + 1})


def test_search_draws_every_variant_with_its_name():
    search = (
        'SEARCH(\'{AWS/SageMaker,EndpointName,VariantName} MetricName="Invocations" '
        "EndpointName=\"e\"', 'Sum', 60) / 10"
    )
    shown = draw([{"expression": search, "label": "of ${PROP('Dim.VariantName')}", "id": "e"}])
    assert shown == {"of a": {0.0: 1.0, 60.0: 1.0}, "of b": pytest.approx({0.0: 0.3, 60.0: 0.3})}


def test_period_is_the_rows_own_or_the_graphs():
    assert draw(row("a", label="own", period=120))["own"] == {0.0: 20.0, 120.0: 20.0}
    assert draw(row("a", label="graph"), period=300)["graph"] == {0.0: 50.0, 300.0: 50.0}


def test_refuses_an_expression_over_an_unknown_metric():
    with pytest.raises(MathError, match="unknown metric id 'missing'"):
        draw([{"expression": "missing * 2", "label": "x", "id": "e"}])


def test_stacked_curves_lie_on_each_other():
    first = Curve(label="a", points={0.0: 1.0, 60.0: 2.0})
    second = Curve(label="b", points={60.0: 5.0})
    points = [dict(curve.points) for curve in stacked([first, second])]
    assert points == [{0.0: 1.0, 60.0: 2.0}, {0.0: 1.0, 60.0: 7.0}]


def test_alarm_watches_its_own_metric_or_the_one_returned():
    plain = {"Namespace": "n", "MetricName": "m", "Dimensions": [], "Period": 60}
    (query,), watched = alarm_query({**plain, "ExtendedStatistic": "p99"})
    assert query["MetricStat"]["Stat"] == "p99" and query["Id"] == watched
    queries = [{"Id": "a", "ReturnData": False}, {"Id": "b", "Expression": "a"}]
    assert alarm_query({"Metrics": queries}) == (queries, "b")
