"""The bound of a run's cost: from price rows, refused where one is not known."""

from __future__ import annotations

import pytest

from roundhouse.acceptance.cost import bound_usd, charges, require_within
from roundhouse.acceptance.sequence import STEPS, limited_steps
from roundhouse.acceptance.setup import new_setup
from roundhouse.errors import RoundhouseError
from tests.unit.roundhouse.acceptance.test_setup import environment

pytestmark = pytest.mark.unit

GIVEN = {"codebuild:linux-gpu.small": 0.1, "training:ml.g6.xlarge": 1.2}


def dev():
    return new_setup(environment("dev"), in_local_cloud=False)


def most_usd(minutes=None, given=GIVEN):
    return bound_usd(charges(dev(), limited_steps(minutes), given), "us-east-1")


def test_bound_counts_every_instance_and_build_for_as_long_as_its_step_may_take():
    items = charges(dev(), STEPS, GIVEN)
    engines = [item for item in items if item.step == "engines"]
    assert [item.usd for item in engines] == pytest.approx([4.5, 0.9, 4.5, 4.5])
    rollback = {item.what: (item.count, item.minutes) for item in items if item.step == "rollback"}
    assert rollback == {
        "endpoint acceptance-python": (4, 60),
        "endpoint acceptance-triton": (1, 60),
    }
    assert most_usd() == pytest.approx(sum(item.usd or 0 for item in items))


def test_less_time_costs_less_and_destroying_always_counts():
    assert most_usd(60) < most_usd()
    items = charges(dev(), limited_steps(1), GIVEN)
    assert {item.step for item in items if item.usd} == {"destroy"}


def test_local_cloud_costs_nothing():
    setup = new_setup(environment("local"), in_local_cloud=True)
    assert charges(setup, STEPS, {}) == ()
    require_within(0.0, None)


def test_a_sum_that_suffices_is_taken():
    require_within(most_usd(), most_usd())


def test_refuses_unknown_prices_by_name():
    with pytest.raises(RoundhouseError, match=r"--price training:ml\.g6\.xlarge=USD"):
        most_usd(given={"codebuild:linux-gpu.small": 0.1})


@pytest.mark.parametrize(("given", "reason"), [(None, "say that it may"), (1.0, "max-usd is 1")])
def test_refuses_a_sum_that_is_missing_or_too_low(given, reason):
    with pytest.raises(RoundhouseError, match=rf"{reason}.*--max-usd 11"):
        require_within(10.2, given)


def test_limited_steps_never_take_longer_together():
    steps = limited_steps(100)
    assert sum(step.limit_minutes for step in steps[:-1]) == 100
    assert steps[-1].limit_minutes == STEPS[-1].limit_minutes
