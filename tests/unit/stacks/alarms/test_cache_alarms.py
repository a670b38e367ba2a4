"""The share of requests whose model is in memory, where models differ in size."""

from __future__ import annotations

import pytest

from stacks.alarms.properties import alarms
from tests.unit.onboarding.test_memory_findings import CAPACITY_MIB, with_models

pytestmark = pytest.mark.unit


def test_cache_hits_collapse_at_half_of_the_models_that_fit_whichever_they_are():
    # Two large ones and two small ones: three fit at most, and of the large ones one alone.
    sizes = {
        "a": CAPACITY_MIB * 0.6,
        "b": CAPACITY_MIB * 0.6,
        "c": CAPACITY_MIB * 0.1,
        "d": CAPACITY_MIB * 0.1,
    }
    alarm = alarms(with_models(sizes))["CacheHits"]
    assert alarm["Threshold"] == 1 / 4 / 2
    assert (
        "half of the 25 % of the models that fit, whichever they are" in alarm["AlarmDescription"]
    )
    assert (
        alarms(with_models(dict.fromkeys("abcd", CAPACITY_MIB / 4)))["CacheHits"]["Threshold"]
        == 0.5
    )
