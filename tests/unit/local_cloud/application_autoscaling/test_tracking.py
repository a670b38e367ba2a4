import pytest
from hypothesis import given
from hypothesis import strategies as st

from local_cloud.application_autoscaling.records import Change
from local_cloud.application_autoscaling.tracking import (
    Proposal,
    capacity_after_cooldown,
    step_capacity,
    tracked_capacity,
)

pytestmark = pytest.mark.unit
counts, loads = st.integers(1, 200), st.floats(0, 1e7)
targets = st.floats(0.5, 1e5)


def proposal(desired):
    return Proposal(policy=None, cause="c", desired=desired, out_seconds=60.0, in_seconds=300.0)


@pytest.mark.parametrize(
    ("current", "metric", "target", "capacity"),
    [
        (1, 601, 600, 2),
        (1, 600, 600, 1),
        (2, 900, 600, 3),
        (3, 200, 600, 1),
        (3, 0, 600, 0),
        (10, 540, 600, 9),
        (0, 700, 600, 1),
        (0, 600, 600, 0),
        (3, 200.00000000001, 600, 1),
    ],
)
def test_capacity_follows_the_metric(current, metric, target, capacity):
    assert tracked_capacity(current, metric, target) == capacity


@given(counts, loads, targets)
def test_capacity_brings_the_metric_to_its_target_with_no_instance_to_spare(
    current, metric, target
):
    found, total = tracked_capacity(current, metric, target), current * metric
    assert found == 0 or total / found <= target * (1 + 1e-6)
    assert found <= 1 or total / (found - 1) > target * (1 - 1e-6)


@given(counts, loads, targets)
def test_scaling_again_at_once_changes_nothing(current, metric, target):
    found = tracked_capacity(current, metric, target)
    if found:
        assert tracked_capacity(found, current * metric / found, target) == found


STEPS = {
    "AdjustmentType": "ChangeInCapacity",
    "StepAdjustments": [
        {"MetricIntervalLowerBound": 0, "MetricIntervalUpperBound": 10, "ScalingAdjustment": 1},
        {"MetricIntervalLowerBound": 10, "ScalingAdjustment": 3},
        {"MetricIntervalUpperBound": -10, "ScalingAdjustment": -1},
    ],
}


@pytest.mark.parametrize(
    ("value", "capacity"), [(50, 5), (59.9, 5), (60, 7), (500, 7), (45, None), (40, 3), (0, 3)]
)
def test_the_step_that_covers_the_breach_is_taken(value, capacity):
    assert step_capacity(STEPS, 4, [value], 50) == capacity


@pytest.mark.parametrize(
    ("kind", "capacity"), [("Minimum", 5), ("Maximum", 7), ("Average", 5), (None, 5)]
)
def test_datapoints_are_aggregated_by_the_policys_statistic(kind, capacity):
    assert step_capacity({**STEPS, "MetricAggregationType": kind}, 4, [51, 52, 70], 50) == capacity


@pytest.mark.parametrize(
    ("desired", "last", "now", "allowed"),
    [
        (5, None, 100, 5),
        (5, Change(before=2, after=4, at=90), 100, 4),
        (8, Change(before=2, after=4, at=90), 100, 6),
        (5, Change(before=2, after=4, at=30), 100, 5),
        (5, Change(before=6, after=4, at=99), 100, 5),
        (2, Change(before=6, after=4, at=99), 100, 4),
        (2, Change(before=6, after=4, at=-250), 100, 2),
        (2, Change(before=2, after=4, at=99), 100, 2),
    ],
)
def test_cool_downs_hold_back_the_same_direction_only(desired, last, now, allowed):
    assert capacity_after_cooldown(proposal(desired), 4, last, now) == allowed
