"""Amounts in USD, and when a saving has paid a build."""

from __future__ import annotations

import pytest

from roundhouse.money import BreakEven, usd

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"), (0, "0.00"), (1234.5, "1,234.50"), (-2, "-2.00"), (0.6, "0.60"),
        (0.01234, "0.0123"),
    ],
)  # fmt: skip
def test_amounts_have_one_format(value, text):
    assert usd(value) == text


@pytest.mark.parametrize(
    ("now", "candidate", "build", "hours", "cell"),
    [
        (2920.0, 1460.0, 14.6, 7.3, "7.3"),
        (2920.0, 1460.0, 0.0, 0.0, "0.0"),
        (2920.0, 1460.0, None, None, "unknown"),
        (None, 1460.0, 1.0, None, "unknown"),
        (2920.0, None, 1.0, None, "unknown"),
        (1460.0, 1460.0, 1.0, None, "never"),
        (1460.0, 1459.995, 1.0, None, "never"),
        (1460.0, 2920.0, None, None, "never"),
    ],
)
def test_build_is_paid_by_what_is_saved(now, candidate, build, hours, cell):
    item = BreakEven(name="e", now=now, candidate=candidate, build=build)
    assert item.hours == (None if hours is None else pytest.approx(hours))
    assert item.cells() == ("e", usd(now), usd(candidate), usd(build), cell)
    assert item.as_dict()["hours"] == item.hours
