"""The driver's own count, from a stand-in for its library."""

from __future__ import annotations

import ctypes

import pytest

from engine_build.runtimes.availability import DRIVER
from engine_build.runtimes.device_memory import MIB, used_mib

CALLS = (
    "cuInit",
    "cuDeviceGet",
    "cuDevicePrimaryCtxRetain",
    "cuCtxPushCurrent_v2",
    "cuMemGetInfo_v2",
    "cuCtxPopCurrent_v2",
)


class Driver:
    """Records its calls; `fails` answers with an error."""

    def __init__(self, fails=None):
        self.called = []
        self._fails = fails

    def __getattr__(self, name):
        def call(*arguments):
            self.called.append(name)
            if name == "cuMemGetInfo_v2":
                arguments[0]._obj.value, arguments[1]._obj.value = 30 * MIB, 100 * MIB
            return 2 if name == self._fails else 0

        return call


def test_used_memory_is_what_is_not_free():
    driver = Driver()
    assert used_mib(driver) == 70.0
    assert tuple(driver.called) == CALLS


@pytest.mark.parametrize("fails", CALLS)
def test_driver_that_fails_counts_nothing(fails):
    assert used_mib(Driver(fails)) is None


def test_machine_without_a_driver_counts_nothing():
    try:
        ctypes.CDLL(DRIVER)
    except OSError:
        assert used_mib() is None
    else:
        pytest.skip("this machine has a driver")
