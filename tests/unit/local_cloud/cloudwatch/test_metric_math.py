"""Metric math of alarms, and the values that it reads."""

import pytest

from local_cloud.cloudwatch.buffer import Buffer, Metric
from local_cloud.cloudwatch.metric_math import MathError, evaluate, watched_series

pytestmark = pytest.mark.unit
TIMES = (0.0, 60.0, 120.0)
METRICS = {"failed": {0.0: 2.0, 60.0: 6.0}, "requests": {0.0: 4.0, 60.0: 0.0, 120.0: 8.0}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("failed / requests", {0.0: 0.5}),
        ("requests - failed * 2", {0.0: 0.0, 60.0: -12.0}),
        ("-failed + 1", {0.0: -1.0, 60.0: -5.0}),
        ("IF(failed >= 5, failed, 0)", {0.0: 0.0, 60.0: 6.0}),
        ("IF(failed >= 5 OR requests == 4, 1, 0)", {0.0: 1.0, 60.0: 1.0}),
        ("IF(failed >= 5 AND requests == 4, 1, 0)", {0.0: 0.0, 60.0: 0.0}),
        ("FILL(failed, 0)", {0.0: 2.0, 60.0: 6.0, 120.0: 0.0}),
        ("(requests + FILL(failed, 0)) / 2", {0.0: 3.0, 60.0: 3.0, 120.0: 4.0}),
        ("FLOOR(failed / 4)", {0.0: 0.0, 60.0: 1.0}),
        ("2 * 3 + 1", 7.0),
    ],
)
def test_expressions_of_the_stacks_are_computed(text, value):
    assert evaluate(text, METRICS, TIMES) == value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("errors / 2", "unknown metric id 'errors', known: failed, requests"),
        ("failed /", "cannot be read"),
        ("RATE(failed)", "not 'RATE(failed)'"),
        ("FILL(failed, REPEAT)", "unknown metric id 'REPEAT'"),
        ("FILL(2, 1)", "FILL takes a metric"),
        ("1 < failed < 3", "not '1 < failed < 3'"),
    ],
)
def test_refuses_an_expression(text, message):
    with pytest.raises(MathError) as error:
        evaluate(text, METRICS, TIMES)
    assert message in str(error.value)


def test_an_alarm_watches_the_query_that_returns_data():
    metric = {"Namespace": "n", "MetricName": "m", "Dimensions": [{"Name": "a", "Value": "b"}]}
    stat = {"Id": "m", "MetricStat": {"Metric": metric, "Stat": "Sum", "Period": 60}}
    half = {"Id": "half", "Expression": "m / 2", "ReturnData": True}

    def read(question, period):
        assert (question.name, question.dimensions, period) == ("m", {"a": "b"}, 60.0)
        return {0.0: 4.0}

    assert watched_series([half, stat | {"ReturnData": "false"}], read, TIMES) == {0.0: 2.0}
    assert watched_series([stat], read, TIMES) == {0.0: 4.0}
    with pytest.raises(MathError, match="exactly one query must return data, found 2"):
        watched_series([stat, half], read, TIMES)


def test_a_load_is_few_points_a_slot():
    metric = Metric(
        account="1", region="r", namespace="n", name="ModelLatency", unit="Microseconds",
        dimensions=(), slot_seconds=60,
    )  # fmt: skip
    buffer = Buffer()
    for number in range(10_000):
        buffer.add(metric, 5000 + number / 100, 61.0)
    buffer.add(metric, 7.0, 125.0)
    (gathered,) = buffer.drain(120.0)
    assert gathered.counts.total() == 10_000 and len(gathered.counts) < 20
    assert [item.counts for item in buffer.drain()] == [{7.0: 1}]
