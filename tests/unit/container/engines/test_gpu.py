"""The first GPU as a driver describes it; the driver is played."""

from __future__ import annotations

import pytest

from container.server.engines.gpu import Gpu, first_gpu


class Driver:
    """libcuda: each call answers 0, but one."""

    def __init__(self, *, fails=None):
        self.fails = fails

    def _end(self, call):
        return int(call == self.fails)

    def cuInit(self, flags):
        return self._end("cuInit")

    def cuDeviceGet(self, device, ordinal):
        device._obj.value = 5
        return self._end("cuDeviceGet")

    def cuDeviceGetName(self, name, length, device):
        assert device.value == 5
        name.value = b"NVIDIA H200"[:length]
        return self._end("cuDeviceGetName")

    def cuDeviceGetAttribute(self, number, attribute, device):
        assert device.value == 5
        number._obj.value = {75: 9, 76: 0}[attribute]
        return self._end("cuDeviceGetAttribute")


def test_gpu_is_the_drivers_first():
    assert first_gpu(lambda name: Driver()) == Gpu(name="NVIDIA H200", compute_capability="9.0")


@pytest.mark.parametrize(
    "call", ["cuInit", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetAttribute"]
)
def test_gpu_that_the_driver_cannot_use_is_none(call):
    assert first_gpu(lambda name: Driver(fails=call)) is None


def test_machine_without_a_driver_has_no_gpu():
    def load(name):
        assert name == "libcuda.so.1"
        raise OSError("cannot open shared object file")

    assert first_gpu(load) is None
