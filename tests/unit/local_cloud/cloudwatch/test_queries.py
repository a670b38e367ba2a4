import pytest

from local_cloud.cloudwatch.queries import Span, evaluate_queries, matching
from local_cloud.cloudwatch.series import Found, MathError

pytestmark = pytest.mark.unit
DIMENSIONS = [{"Name": "EndpointName", "Value": "e"}, {"Name": "VariantName", "Value": "v"}]
METRICS = [
    Found(
        namespace="AWS/SageMaker",
        name="Invocations",
        dimensions={"EndpointName": "one", "VariantName": "v"},
    ),
    Found(
        namespace="AWS/SageMaker",
        name="Invocations",
        dimensions={"EndpointName": "two", "VariantName": "v"},
    ),
    Found(
        namespace="AWS/SageMaker",
        name="ModelLatency",
        dimensions={"EndpointName": "one", "VariantName": "v"},
    ),
    Found(
        namespace="AWS/SageMaker", name="ApproximateBacklogSize", dimensions={"EndpointName": "one"}
    ),
]


def stat(name, metric="Invocations", statistic="Sum", period=60, **more):
    stat_of_metric = {
        "Metric": {"Namespace": "AWS/SageMaker", "MetricName": metric, "Dimensions": DIMENSIONS},
        "Period": period,
    }
    return {"Id": name, "MetricStat": {**stat_of_metric, "Stat": statistic}, **more}


def span(answers, stretch=1.0):
    def read(question, period):
        return answers[(question.name, question.statistic, period)]

    return Span(start=0.0, end=180.0 * stretch, read=read, metrics=lambda: METRICS, stretch=stretch)


def test_expressions_are_computed_in_the_order_that_they_need_each_other():
    queries = [
        {"Id": "percent", "Expression": "share * 100"},
        {"Id": "share", "Expression": "errors / requests"},
        stat("errors", "Invocation5XXErrors"),
        stat("requests"),
    ]
    answers = {
        ("Invocation5XXErrors", "Sum", 60.0): {60.0: 1.0},
        ("Invocations", "Sum", 60.0): {60.0: 4.0, 120.0: 5.0},
    }
    assert evaluate_queries(queries, span(answers))["percent"] == {60.0: 25.0}


def test_fill_knows_every_period_also_where_time_runs_faster():
    queries = [stat("m"), {"Id": "e", "Expression": "FILL(m, 7)"}]
    found = evaluate_queries(queries, span({("Invocations", "Sum", 60.0): {}}, stretch=1 / 60))
    assert found["e"] == {0.0: 7.0, 1.0: 7.0, 2.0: 7.0}


def test_search_is_read_with_its_own_statistic():
    queries = [
        {
            "Id": "e",
            "Expression": """SUM(SEARCH('{AWS/SageMaker,EndpointName,VariantName} MetricName="Invocations"', 'Sum'))""",
        }
    ]
    assert evaluate_queries(queries, span({("Invocations", "Sum", 60.0): {0.0: 2.0}}))["e"] == {
        0.0: 4.0
    }


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (
            [{"Id": "a", "Expression": "b"}, {"Id": "b", "Expression": "a"}],
            "the expressions a, b wait for each other",
        ),
        ([stat("a"), stat("a")], "the ids of queries must differ"),
        ([{"Id": "a"}], "query a needs a MetricStat or an Expression"),
    ],
)
def test_refuses_queries(queries, message):
    with pytest.raises(MathError, match=message):
        evaluate_queries(queries, span({("Invocations", "Sum", 60.0): {}}))


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{AWS/SageMaker,EndpointName,VariantName} MetricName="Invocations"', [0, 1]),
        (
            '{AWS/SageMaker,EndpointName,VariantName} MetricName="Invocations" EndpointName="two"',
            [1],
        ),
        ("{AWS/SageMaker,EndpointName}", [3]),
        ('Namespace="AWS/SageMaker" AND ModelLatency', [2]),
    ],
)
def test_search_means(text, found):
    assert matching(text, METRICS) == [METRICS[number] for number in found]


def test_refuses_a_search_that_it_cannot_read():
    with pytest.raises(MathError, match="terms that must all hold"):
        matching('MetricName="a" OR MetricName="b"', METRICS)
