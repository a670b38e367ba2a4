import pytest

from local_cloud.cloudwatch.buffer import Buffer, Metric

pytestmark = pytest.mark.unit


def metric(**changes):
    given = {
        "account": "1",
        "region": "r",
        "namespace": "n",
        "name": "m",
        "unit": "None",
        "dimensions": (),
        "slot_seconds": 60.0,
    }
    return Metric(**{**given, **changes})


def test_values_of_a_slot_are_one_point_each_and_wait_for_its_end():
    buffer = Buffer()
    for at in (60.5, 61.0, 119.9):
        buffer.add(metric(), 5.0, at)
    buffer.add(metric(), 7.0, 120.0)
    assert list(buffer.drain(119.99)) == []
    (ended,) = buffer.drain(120.0)
    assert (ended.at, ended.values) == (60.5, ((5.0, 3),))


def test_everything_is_drained_on_demand_and_only_once():
    buffer = Buffer()
    buffer.add(metric(), 5.0, 60.5)
    buffer.add(metric(name="other"), 1.0, 60.5)
    assert [gathered.metric.name for gathered in buffer.drain()] == ["m", "other"]
    assert list(buffer.drain()) == []
    buffer.add(metric(), 6.0, 61.5)
    assert [item.values for item in buffer.drain()] == [((6.0, 1),)]


def test_accounts_are_kept_apart():
    buffer = Buffer()
    buffer.add(metric(), 5.0, 60.5)
    buffer.add(metric(account="2"), 6.0, 60.5)
    actual = {gathered.metric.account: gathered.values for gathered in buffer.drain()}
    assert actual == {"1": ((5.0, 1),), "2": ((6.0, 1),)}
