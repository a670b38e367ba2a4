"""A device's memory, queue and graphs on a stand-in, and tensors in one block."""

from __future__ import annotations

from contextlib import nullcontext

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


def test_values_come_back_as_they_were_sent(device):
    values = np.arange(12, dtype=np.int64).reshape(3, 4)
    device.send("ids", values)
    copy = device.bring("ids", (3, 4), np.int64)
    device.wait()
    assert np.array_equal(copy, values)


def test_nothing_happens_before_the_wait(device, cuda):
    address = device.send("ids", np.arange(4))
    assert (cuda.blocks[address] == 0xAB).all()
    device.wait()
    assert not (cuda.blocks[address] == 0xAB).all()


def test_buffers_grow_and_never_shrink(device, cuda):
    small, large = device.buffer("ids", 10), device.buffer("ids", 1000)
    assert small not in cuda.blocks and device.buffer("ids", 10) == large
    assert device.buffer("mask", 10) != large


def test_pinned_memory_is_the_hosts_and_stays(device, cuda):
    block, address = device.reserve("inputs", 64)
    block[:] = 7
    assert block.ctypes.data in cuda.host and address == device.buffer("inputs", 64)
    assert (device.reserve("inputs", 8)[0] == 7).all()


def test_recording_runs_nothing_until_it_is_launched(device, cuda):
    values, copy = np.arange(4), np.zeros(4, np.int64)
    device.buffer("ids", values.nbytes)

    def queue():
        device.send("ids", values)
        device.bring_into("ids", copy)
        return True

    graph = device.record_graph(queue)
    device.wait()
    assert copy.tolist() == [0, 0, 0, 0]
    values[:] = 9
    device.launch(graph)
    device.wait()
    assert copy.tolist() == [9, 9, 9, 9]
    device.forget(graph)
    assert cuda.graphs == {}


def test_recording_that_is_given_up_ends_all_the_same(device, cuda):
    def fail():
        raise DeviceFault("no")

    assert device.record_graph(lambda: False) is None and device.record_graph(fail) is None
    assert cuda.recording == {} and cuda.count("cudaGetLastError") == 2
    assert cuda.unready == 0


def test_recording_that_is_broken_off_leaves_no_graph(device, cuda):
    cuda.capture_error = Error.cudaErrorStreamCaptureUnsupported
    assert device.record_graph(lambda: True) is None
    assert (cuda.count("cudaGraphDestroy"), cuda.unready) == (0, 0)


def test_recording_for_which_there_is_no_memory_is_given_back(device, cuda):
    cuda.fails["cudaGraphInstantiate"] = Error.cudaErrorMemoryAllocation
    with pytest.raises(DeviceOutOfMemory):
        device.record_graph(lambda: True)
    assert cuda.recording == {} and cuda.unready == 0


@pytest.mark.parametrize("fails", ["", "cudaFree"])
def test_closing_frees_all_that_the_gpu_can(device, cuda, fails):
    device.reserve("inputs", 10)
    cuda.fails[fails] = Error.cudaErrorIllegalAddress
    with pytest.raises(DeviceFault, match="illegal memory access") if fails else nullcontext():
        device.close()
    assert (cuda.host, cuda.queues) == ({}, {})
    assert bool(cuda.blocks) == bool(fails)


def test_refuses_more_memory_than_there_is():
    with pytest.raises(
        DeviceOutOfMemory, match=r"CUDA fails with out of memory \(2\); free the GPU"
    ):
        Device(RecordedCuda(total=100)).buffer("ids", 101)


def test_refuses_what_fails_on_the_device_at_the_wait(device, cuda):
    cuda.fails["cudaStreamSynchronize"] = Error.cudaErrorIllegalAddress
    with pytest.raises(DeviceFault, match="illegal memory access") as fault:
        device.wait()
    assert not isinstance(fault.value, DeviceOutOfMemory)


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


def test_block_ends_with_the_last_tensor():
    extents = layout({"a": (3,), "b": (2, 2)}, {"a": np.int64, "b": np.float16})
    assert block_size(extents) == ALIGNMENT + 8
