"""Versions that two sides name more or less of."""

from __future__ import annotations

import pytest

from onboarding.values import is_same_build


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.16.1.11", "10.16.1.11", True),
        ("11.0.0", "11.0.0.114", True),
        ("10.6.0.26", "10.6.0", True),
        ("10.16.1.11", "10.16.1.12", False),
        ("10.16.1", "10.16.11.1", False),
        ("10.6.0.26", "10.6.1", False),
        ("10.6.0", "11.6.0", False),
        ("10.6.0", "", False),
    ],
)
def test_every_number_that_both_name_counts(one, other, same):
    assert is_same_build(one, other) is same
    assert is_same_build(other, one) is same
