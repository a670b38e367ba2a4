"""Calibration batches on a real GPU, through NVIDIA's own CUDA bindings.

Without them, or a GPU, these are counted as not run.
"""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="needs the environment that builds engines")
cuda = pytest.importorskip("cuda.bindings.runtime", reason="needs cuda-bindings")

from container.tensorrt.device import Device
from container.tensorrt.faults import DeviceOutOfMemory
from engine_build.quantization.calibrator import DeviceBatches

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        cuda.cudaGetDeviceCount()[0] != cuda.cudaError_t.cudaSuccess,
        reason="needs an NVIDIA GPU and its driver",
    ),
]


def device_values(pointer, like):
    """What lies at a place in device memory."""
    found = np.empty_like(like)
    kind = cuda.cudaMemcpyKind.cudaMemcpyDeviceToHost
    assert (
        cuda.cudaMemcpy(found.ctypes.data, pointer, found.nbytes, kind)[0]
        == cuda.cudaError_t.cudaSuccess
    )
    return found


def test_batches_arrive_whole_and_in_order():
    draw = np.random.default_rng(0)
    feeds = [
        {
            "ids": draw.integers(0, 30000, (32, 128)),
            "pixels": draw.random((32, 224, 224, 3), dtype=np.float32).transpose(0, 3, 1, 2),
        }
        for _ in range(3)
    ]
    device = Device(cuda)
    batches = DeviceBatches(device, feeds)
    places = set()
    for feed in feeds:
        pointers = batches.pointers(["pixels", "ids"])
        places.add(tuple(pointers))
        assert (
            device_values(pointers[0], np.ascontiguousarray(feed["pixels"])) == feed["pixels"]
        ).all()
        assert (device_values(pointers[1], feed["ids"]) == feed["ids"]).all()
    assert batches.pointers(["pixels", "ids"]) == [] and batches.fault is None
    assert batches.served == 3 and len(places) == 1
    device.close()


def test_refuses_more_memory_than_the_gpu_has_in_cudas_words():
    device = Device(cuda)
    _, _, total = cuda.cudaMemGetInfo()
    with pytest.raises(DeviceOutOfMemory, match="out of memory"):
        device.buffer("x", 2 * total)
    device.close()
