"""A device's memory, queue and graphs on a stand-in, and tensors in one block."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from container.tensorrt.context import ALIGNMENT, block_size, layout
from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceFault, DeviceOutOfMemory
from tests.fixtures.recorded_gpu.cuda import Error, RecordedCuda


@pytest.fixture
def cuda():
    return RecordedCuda()


@pytest.fixture
def device(cuda):
    return Device(cuda)


def test_recording_that_is_given_up_ends_all_the_same(device, cuda):
    def fail():
        raise DeviceFault("no")

    assert device.record_graph(lambda: False) is None and device.record_graph(fail) is None
    assert cuda.recording == {} and cuda.count("cudaGetLastError") == 2
    assert cuda.unready == 0


def test_recording_for_which_there_is_no_memory_is_given_back(device, cuda):
    cuda.fails["cudaGraphInstantiate"] = Error.cudaErrorMemoryAllocation
    with pytest.raises(DeviceOutOfMemory):
        device.record_graph(lambda: True)
    assert cuda.recording == {} and cuda.unready == 0


TYPES = st.sampled_from([np.int64, np.int32, np.float16, np.bool_])
SHAPES = st.lists(st.lists(st.integers(0, 9), max_size=3).map(tuple), min_size=1, max_size=5)


@given(SHAPES, st.data())
def test_tensors_are_aligned_and_do_not_overlap(shapes, data):
    named = {f"t{index}": shape for index, shape in enumerate(shapes)}
    extents = layout(named, {name: data.draw(TYPES) for name in named})
    block = np.zeros(block_size(extents), np.uint8)
    for number, extent in enumerate(extents.values(), start=1):
        assert extent.offset % ALIGNMENT == 0
        view = extent.view(block)
        assert view.shape == extent.shape and not view.any()
        view[...] = number % 2 if view.dtype == bool else number
        block[extent.offset : extent.end] |= 0x80
