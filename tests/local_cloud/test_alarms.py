"""Alarms, evaluated by CloudWatch's rules; a minute lasts a second here."""

import json
from datetime import UTC, datetime

import pytest

from tests.local_cloud.account import until

pytestmark = pytest.mark.local_cloud


@pytest.fixture
def watch(cloud):
    return cloud.client("cloudwatch")


def alarm(watch, name, **properties):
    given = {
        "AlarmName": name,
        "Namespace": "Test",
        "MetricName": name,
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 2,
        "Threshold": 10,
        "ComparisonOperator": "GreaterThanThreshold",
        **properties,
    }
    watch.put_metric_alarm(**{field: value for field, value in given.items() if value is not None})


def described(watch, name):
    return watch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]


def becomes(watch, name, state, feeding=lambda: None):
    """Waits for a state, which lasts no longer than what is fed does; so it is fed until then."""

    def alarm_in_state():
        feeding()
        return found if (found := described(watch, name))["StateValue"] == state else None

    return until(alarm_in_state)


def put(watch, name, *values, dimensions=()):
    data = {
        "MetricName": name,
        "Timestamp": datetime.now(UTC),
        "Values": list(values),
        "Dimensions": list(dimensions),
    }
    watch.put_metric_data(Namespace="Test", MetricData=[data])


def test_alarm_needs_every_period_to_breach_and_recovers(watch):
    alarm(watch, "sustained")
    assert described(watch, "sustained")["StateValue"] == "INSUFFICIENT_DATA"
    found = becomes(watch, "sustained", "ALARM", lambda: put(watch, "sustained", 20))
    assert "were greater than the threshold (10)" in found["StateReason"]
    becomes(watch, "sustained", "INSUFFICIENT_DATA")


def test_one_breach_of_several_is_not_enough(watch):
    alarm(watch, "blip", EvaluationPeriods=3, DatapointsToAlarm=3, TreatMissingData="notBreaching")
    becomes(watch, "blip", "OK")
    # One whose single datapoint is enough sees it in every place, and then no more; so has the
    # other.
    alarm(
        watch,
        "witness",
        MetricName="blip",
        EvaluationPeriods=3,
        DatapointsToAlarm=1,
        TreatMissingData="notBreaching",
    )
    put(watch, "blip", 50)
    until(lambda: "to ALARM" in history(watch, "witness"))
    becomes(watch, "witness", "OK")
    assert described(watch, "blip")["StateValue"] == "OK"
    assert "to ALARM" not in history(watch, "blip")


def history(watch, name):
    """Every change of an alarm's state."""
    found = watch.describe_alarm_history(AlarmName=name, HistoryItemType="StateUpdate")
    return " ".join(item["HistorySummary"] for item in found["AlarmHistoryItems"])


def test_m_of_n_datapoints_are_enough(watch):
    alarm(watch, "some", EvaluationPeriods=3, DatapointsToAlarm=1, TreatMissingData="notBreaching")
    put(watch, "some", 50)
    until(lambda: "to ALARM" in history(watch, "some"))
    becomes(watch, "some", "OK")


def test_missing_data_is_treated_as_the_alarm_sets(watch):
    for treated in ("breaching", "notBreaching", "missing"):
        alarm(watch, f"silent-{treated}", TreatMissingData=treated)
    becomes(watch, "silent-breaching", "ALARM")
    becomes(watch, "silent-notBreaching", "OK")
    assert described(watch, "silent-missing")["StateValue"] == "INSUFFICIENT_DATA"


def test_a_percentile_is_not_an_average(watch):
    slow_one_in_fifty = [5.0] * 49 + [100.0]
    options = {
        "MetricName": "latency",
        "Statistic": None,
        "Threshold": 50,
        "EvaluationPeriods": 1,
        "TreatMissingData": "ignore",
    }
    alarm(watch, "p50", ExtendedStatistic="p50", **options)
    alarm(watch, "p99", ExtendedStatistic="p99", **options)
    becomes(watch, "p99", "ALARM", lambda: put(watch, "latency", *slow_one_in_fifty))
    becomes(watch, "p50", "OK", lambda: put(watch, "latency", *slow_one_in_fifty))


def test_an_alarm_watches_its_own_dimensions_only(watch):
    own, other = ([{"Name": "Variant", "Value": value}] for value in ("own", "other"))
    alarm(
        watch, "dimensioned", Dimensions=own, TreatMissingData="notBreaching", EvaluationPeriods=1
    )
    alarm(watch, "other", MetricName="dimensioned", Dimensions=other, EvaluationPeriods=1)
    becomes(watch, "dimensioned", "OK")
    becomes(watch, "other", "ALARM", lambda: put(watch, "dimensioned", 50, dimensions=other))
    assert history(watch, "dimensioned").count("to ALARM") == 0
    becomes(watch, "dimensioned", "ALARM", lambda: put(watch, "dimensioned", 50, dimensions=own))


def sum_query(name):
    """A query for the sum of a metric, which only expressions use."""
    stat = {"Metric": {"Namespace": "Test", "MetricName": name}, "Period": 60, "Stat": "Sum"}
    return {"Id": name, "MetricStat": stat, "ReturnData": False}


def test_an_alarm_on_metric_math_is_evaluated(watch):
    share = {"Id": "share", "Expression": "IF(asked > 5, failed / asked, 0)", "ReturnData": True}
    metrics = [sum_query("failed"), sum_query("asked"), share]
    single = dict.fromkeys(("Namespace", "MetricName", "Statistic", "Period"))
    alarm(
        watch,
        "share",
        Metrics=metrics,
        Threshold=0.1,
        EvaluationPeriods=1,
        TreatMissingData="notBreaching",
        **single,
    )
    actual = [query["Id"] for query in described(watch, "share")["Metrics"]]
    assert actual == ["failed", "asked", "share"]
    becomes(
        watch,
        "share",
        "ALARM",
        lambda: (put(watch, "asked", *[1.0] * 8), put(watch, "failed", 2.0)),
    )
    becomes(watch, "share", "OK")


def test_a_set_state_lasts_until_the_next_evaluation_and_tells_its_topic(cloud, watch):
    topic = cloud.client("sns").create_topic(Name="alarmed")["TopicArn"]
    queue = cloud.client("sqs").create_queue(QueueName="alarmed")["QueueUrl"]
    attributes = cloud.client("sqs").get_queue_attributes(
        QueueUrl=queue, AttributeNames=["QueueArn"]
    )
    arn = attributes["Attributes"]["QueueArn"]
    cloud.client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    alarm(watch, "told", AlarmActions=[topic], EvaluationPeriods=1)
    becomes(watch, "told", "ALARM", lambda: put(watch, "told", 50))

    def heard():
        return cloud.client("sqs").receive_message(QueueUrl=queue).get("Messages")

    message = json.loads(json.loads(until(heard)[0]["Body"])["Message"])
    assert (message["AlarmName"], message["NewStateValue"]) == ("told", "ALARM")
    assert "greater than the threshold" in message["NewStateReason"]
