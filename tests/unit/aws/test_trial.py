"""The story in a real account is not begun where its cost is unknown or too high."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.aws.trial import LIMITS, Charge, Refused, new_trial, require_within

pytestmark = pytest.mark.unit


def test_bound_is_everything_rented_for_as_long_as_the_story_may_take(tmp_path):
    trial = new_trial("dev", tmp_path / "tree")
    images, engine, instances, refused = charges = trial.charges()
    assert trial.route == "training-job", "no price of CodeBuild's GPU is known"
    assert all(charge.usd > 0 for charge in charges) and engine.minutes == images.minutes
    assert (instances.count, instances.what) == (2, "an instance ml.g6.xlarge")
    assert instances.minutes >= sum(LIMITS.values()) and refused.count == instances.count
    bound = sum(charge.usd for charge in charges)
    assert require_within(charges, str(bound)) == bound and 20 < bound < 40


def test_refuses_a_build_whose_price_no_row_has(tmp_path):
    charges = replace(new_trial("dev", tmp_path / "tree"), route="gpu").charges()
    with pytest.raises(Refused, match="no price of a build by route gpu in this region"):
        require_within(charges, "1000")


def test_the_local_cloud_costs_nothing(tmp_path):
    charges = new_trial("local", tmp_path / "tree").charges()
    assert charges == () and require_within(charges, None) == 0


@pytest.mark.parametrize(
    ("usd_a_minute", "max_usd", "says"),
    [
        (0.1, None, r"is 0, and the story may cost up to 6\.00 USD"),
        (0.1, "5.9", r"MAX_USD is 5\.9, .*2 x an instance, 30 minutes: 6\.00.* MAX_USD=7"),
        (0.1, "much", "'much'; it must be a number"),
        (None, "100", "no price of an instance in this region, so the cost has no bound"),
    ],
)
def test_refuses_a_story_without_a_bound_below_its_limit(usd_a_minute, max_usd, says):
    charge = Charge(what="an instance", count=2, minutes=30, usd_a_minute=usd_a_minute)
    with pytest.raises(Refused, match=says.replace(" MAX_USD=7", "ROUNDHOUSE_AWS_MAX_USD=7")):
        require_within((charge,), max_usd)


def test_refuses_an_unknown_environment(tmp_path):
    with pytest.raises(Refused, match="ENVIRONMENT is nowhere; allowed: dev, local"):
        new_trial("nowhere", tmp_path / "tree")
