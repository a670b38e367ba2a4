import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cloud.cloudwatch.expression import Grounds, evaluate, parse, referenced_ids
from local_cloud.cloudwatch.series import MathError

pytestmark = pytest.mark.unit
M1, M2 = {60.0: 10.0, 120.0: 20.0}, {120.0: 4.0, 180.0: 8.0}
GROUNDS = Grounds(metrics={"m1": M1, "m2": M2}, times=(60.0, 120.0, 180.0))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("m1/100", {60.0: 0.1, 120.0: 0.2}),
        ("m1 / 1000", {60.0: 0.01, 120.0: 0.02}),
        ("m1+m2", {120.0: 24.0}),
        ("-m1 * 2", {60.0: -20.0, 120.0: -40.0}),
        ("1 + 2 * 3 ^ 2", 19.0),
        ("(1 + 2) * 3", 9.0),
        ("SUM([m1, m2])", {60.0: 10.0, 120.0: 24.0, 180.0: 8.0}),
        ("SUM(METRICS())", {60.0: 10.0, 120.0: 24.0, 180.0: 8.0}),
        ("AVG([m1,m2])", {60.0: 10.0, 120.0: 12.0, 180.0: 8.0}),
        ("MAX(m1)", 20.0),
        ("m1 / SUM(m1)", {60.0: 1 / 3, 120.0: 2 / 3}),
        ("FILL(m2, 0)", {60.0: 0.0, 120.0: 4.0, 180.0: 8.0}),
        ("FILL(m1, REPEAT)", {60.0: 10.0, 120.0: 20.0, 180.0: 20.0}),
        ("100 * m2 / FILL(m1, 1)", {120.0: 20.0, 180.0: 800.0}),
        ("IF(m1 > 15, m1, 0)", {60.0: 0.0, 120.0: 20.0}),
        ("IF(m1 > 15 AND m2 < 5, 1, 0)", {120.0: 1.0}),
        ("IF(m1 > 15, 1)", {120.0: 1.0}),
        ("m1 >= 20", {60.0: 0.0, 120.0: 1.0}),
        ("m1 / PERIOD(m1)", {60.0: 10 / 60, 120.0: 20 / 60}),
        ("RATE(m1)", {120.0: 10 / 60}),
        ("DIFF(m1)", {120.0: 10.0}),
        ("CEIL(m1 / 8)", {60.0: 2.0, 120.0: 3.0}),
        ("TIME_SERIES(5)", {60.0: 5.0, 120.0: 5.0, 180.0: 5.0}),
        ("[m1, m2] * 2", [{60.0: 20.0, 120.0: 40.0}, {120.0: 8.0, 180.0: 16.0}]),
    ],
)
def test_value(text, value):
    assert evaluate(text, GROUNDS) == (
        pytest.approx(value) if not isinstance(value, list) else value
    )


def test_a_division_by_zero_has_no_datapoint():
    assert evaluate(
        "m1 / m2", Grounds(metrics={"m1": {1.0: 5.0, 2.0: 6.0}, "m2": {1.0: 0.0, 2.0: 3.0}})
    ) == {2.0: 2.0}


def test_search_finds_metrics():
    searches = []
    grounds = Grounds(metrics={}, search=lambda *arguments: searches.append(arguments) or [M1, M2])
    assert (
        evaluate(
            "SUM(SEARCH('{AWS/SageMaker,EndpointName} MetricName=\"Invocations\"', 'Sum', 300))",
            grounds,
        )[120.0]
        == 24.0
    )
    assert searches == [('{AWS/SageMaker,EndpointName} MetricName="Invocations"', "Sum", 300.0)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m3 + 1", "unknown metric id 'm3', known: m1, m2"),
        ("m1 +", "the expression ends too early"),
        ("m1 m2", "unexpected 'm2'"),
        ("m1 $ 2", "unexpected '$'"),
        (
            "ANOMALY_DETECTION_BAND(m1)",
            "the local cloud has no metric math function ANOMALY_DETECTION_BAND of 1 arguments",
        ),
        ("SUM(3)", "a function over time series was given a number"),
        ("[m1, m2] + [m1]", "lists of 2 and 1 time series cannot be combined"),
    ],
)
def test_refuses(text, message):
    with pytest.raises(
        MathError, match=message.replace("$", r"\$").replace("[", r"\[").replace("+", r"\+")
    ):
        evaluate(text, GROUNDS)


def test_names_what_an_expression_needs():
    actual = referenced_ids(parse("IF(a > 1, FILL(b, REPEAT), METRICS())"))
    assert actual == {"a", "b", "REPEAT", "METRICS"}


numbers = st.floats(min_value=0.1, max_value=1e6)


@given(numbers, numbers, numbers)
def test_precedence_is_arithmetic_s_own(a, b, c):
    grounds = Grounds(metrics={"a": {0.0: a}, "b": {0.0: b}, "c": {0.0: c}})
    assert evaluate("a - b / c - a * c", grounds) == pytest.approx({0.0: a - b / c - a * c})


@given(
    st.dictionaries(st.integers(0, 20).map(float), numbers),
    st.dictionaries(st.integers(0, 20).map(float), numbers),
)
def test_sum_of_a_list_has_every_datapoint_and_plus_only_common_ones(first, second):
    grounds = Grounds(metrics={"a": first, "b": second})
    total = evaluate("SUM([a, b])", grounds)
    assert set(total) == set(first) | set(second)
    both = evaluate("a + b", grounds)
    assert set(both) == set(first) & set(second)
    assert all(math.isclose(total[at], both[at]) for at in both)
