"""The calibrator and its process, with TensorRT and CUDA played.

Tests/bindings proves that the real ones have every name.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from container.tensorrt.device import Device
from engine_build.quantization import calibrator
from engine_build.quantization.calibrator import (
    DeviceBatches,
    build_with_calibrator,
    entropy_calibrator,
    feed_shapes,
    read_feeds,
)
from engine_build.steps.calibrate import save_feeds

CACHE = b"TRT-101601-EntropyCalibration2\nids: 3c010a14\n"
FEEDS = [
    {"ids": np.full((2, 4), row, dtype=np.int64), "mask": np.ones((2, 4), dtype=np.int64)}
    for row in range(3)
]


class Error(int):
    """A cudaError_t."""


class Cuda:
    """CUDA's runtime, its device memory being this process's own."""

    cudaError_t = SimpleNamespace(cudaSuccess=Error(0), cudaErrorMemoryAllocation=Error(2))
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyHostToDevice=1)
    cudaStreamNonBlocking = 1

    def __init__(self, *, fails: str | None = None) -> None:
        self._fails = fails
        self.memory: dict[int, ctypes.Array] = {}
        self.freed: list[int] = []

    def _end(self, call):
        return Error(call == self._fails)

    def cudaSetDevice(self, device):
        return (self._end("cudaSetDevice"),)

    def cudaStreamCreateWithFlags(self, flags):
        assert flags == self.cudaStreamNonBlocking
        return self._end("cudaStreamCreateWithFlags"), 7

    def cudaStreamSynchronize(self, stream):
        return (self._end("cudaStreamSynchronize"),)

    def cudaStreamDestroy(self, stream):
        return (self._end("cudaStreamDestroy"),)

    def cudaMalloc(self, size):
        buffer = ctypes.create_string_buffer(size)
        self.memory[ctypes.addressof(buffer)] = buffer
        return self._end("cudaMalloc"), ctypes.addressof(buffer)

    def cudaMemcpyAsync(self, dst, src, count, kind, stream):
        assert (kind, stream) == (1, 7)
        ctypes.memmove(dst, src, count)
        return (self._end("cudaMemcpyAsync"),)

    def cudaFree(self, devPtr):
        self.freed.append(devPtr)
        return (self._end("cudaFree"),)

    def cudaGetErrorString(self, error):
        return Error(0), b"out of memory"


class Base:
    """Base classes that must be initialised, as the bindings' must."""

    def __init__(self) -> None:
        self.initialised = True


class ILogger(Base):
    Severity = SimpleNamespace(ERROR=1)


class TensorRT:
    """Records what it is asked for, and calibrates as TensorRT does.

    Batches until there is none, then the cache.
    """

    __version__ = "10.16.1.11"
    ILogger = ILogger
    IInt8EntropyCalibrator2 = Base
    BuilderFlag = SimpleNamespace(INT8="INT8")

    def __init__(self, cuda=None, *, parses=True, calibrates=True) -> None:
        self.calls: list[tuple] = []
        self.seen: list[list[int]] = []
        self._cuda = cuda
        self._parses = parses
        self._calibrates = calibrates

    def OnnxParser(self, network, logger):
        errors = [
            SimpleNamespace(
                node_name=lambda: "/det", node_operator=lambda: "Det", desc=lambda: "no\n importer"
            )
        ]
        parsed = lambda path: self.calls.append(("parse", path)) or self._parses
        return SimpleNamespace(
            parse_from_file=parsed, num_errors=len(errors), get_error=errors.__getitem__
        )

    def Builder(self, logger):
        inputs = [SimpleNamespace(name="ids"), SimpleNamespace(name="mask")]
        network = SimpleNamespace(num_inputs=len(inputs), get_input=inputs.__getitem__)
        return SimpleNamespace(
            create_network=lambda flags: self.calls.append(("network", flags)) or network,
            create_builder_config=self._config,
            create_optimization_profile=lambda: SimpleNamespace(set_shape=self._sentence("shape")),
            build_serialized_network=lambda network, config: self._build(config, logger),
        )

    def _config(self):
        words = {
            "add_optimization_profile": "profile",
            "set_calibration_profile": "calibration profile",
            "set_flag": "flag",
        }
        return SimpleNamespace(**{name: self._sentence(word) for name, word in words.items()})

    def _sentence(self, word):
        return lambda *arguments: self.calls.append(
            (word, *[each for each in arguments if isinstance(each, (str, tuple))])
        )

    def _build(self, config, logger):
        asked = config.int8_calibrator
        assert asked.initialised and logger.initialised and asked.read_calibration_cache() is None
        self.calls.append(("build", config.builder_optimization_level, asked.get_batch_size()))
        while pointers := asked.get_batch(["ids", "mask"]):
            self.seen.append([ctypes.c_int64.from_address(pointer).value for pointer in pointers])
        if not self._calibrates or len(self.seen) < len(FEEDS):
            logger.log(2, "a warning")
            logger.log(1, "calibration\n failed")
            return
        asked.write_calibration_cache(memoryview(CACHE))
        assert asked.read_calibration_cache() == CACHE


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "feeds").mkdir()
    save_feeds(FEEDS, tmp_path / "feeds")
    return tmp_path / "feeds"


def refused(trt, cuda, folder, tmp_path):
    batches = DeviceBatches(Device(cuda), read_feeds(folder))
    return build_with_calibrator(
        trt, Path("net.onnx"), feed_shapes(folder), batches, tmp_path / "made.cache"
    ), batches


def test_calibration_asks_tensorrt_for_int8_at_the_feeds_shape_and_keeps_the_cache(
    folder, tmp_path
):
    trt = TensorRT()
    reason, batches = refused(trt, Cuda(), folder, tmp_path)
    assert (reason, batches.served) == (None, 3)
    shape = (2, 4)
    assert trt.calls == [
        ("network", 0),
        ("parse", "net.onnx"),
        ("flag", "INT8"),
        ("shape", "ids", shape, shape, shape),
        ("shape", "mask", shape, shape, shape),
        ("profile",),
        ("calibration profile",),
        ("build", 0, 1),
    ]
    assert trt.seen == [[0, 1], [1, 1], [2, 1]]
    assert (tmp_path / "made.cache").read_bytes() == CACHE


def test_device_memory_is_taken_once_an_input_and_given_back():
    cuda = Cuda()
    device = Device(cuda)
    batches = DeviceBatches(device, FEEDS)
    first, second = batches.pointers(["mask", "ids"]), batches.pointers(["mask", "ids"])
    assert first == second == list(cuda.memory)
    device.close()
    assert cuda.freed == first


def test_rows_that_are_no_single_block_are_copied_in_order():
    cuda = Cuda()
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (pointer,) = DeviceBatches(Device(cuda), [{"x": turned}]).pointers(["x"])
    assert np.frombuffer(cuda.memory[pointer], dtype=np.float32)[:6].tolist() == [0, 3, 1, 4, 2, 5]


def test_feeds_survive_the_way_to_the_child(folder):
    for found, wanted in zip(read_feeds(folder), FEEDS, strict=True):
        assert all(
            (found[name] == wanted[name]).all() and found[name].dtype == wanted[name].dtype
            for name in wanted
        )
    assert feed_shapes(folder) == {"ids": (2, 4), "mask": (2, 4)}


@pytest.mark.parametrize("call", ["cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize"])
def test_refuses_a_gpu_that_fails_in_cudas_words(folder, tmp_path, call):
    trt = TensorRT()
    reason, batches = refused(trt, Cuda(fails=call), folder, tmp_path)
    assert (
        "out of memory" in reason and reason.endswith("calibration failed") and batches.served == 0
    )
    assert batches.pointers(["ids", "mask"]) == []


def test_refuses_a_batch_of_another_shape():
    batches = DeviceBatches(
        Device(Cuda()), [{"x": np.zeros((2, 2))}, {"x": np.zeros((1, 4))}, {"x": np.zeros((2, 2))}]
    )
    assert [len(batches.pointers(["x"])) for _ in range(3)] == [1, 0, 0]
    assert batches.fault == "a batch of input 'x' has shape [1, 4], but the first had [2, 2]"


def test_refuses_a_feed_without_an_input():
    batches = DeviceBatches(Device(Cuda()), [{"x": np.zeros(4)}])
    assert (
        batches.pointers(["x", "y"]) == []
        and batches.fault == "the feeds have no input 'y' of the network"
    )


def test_refuses_feeds_without_an_input_before_the_build(tmp_path):
    save_feeds([{"ids": np.zeros((1, 2))}], tmp_path)
    trt = TensorRT()
    assert (
        refused(trt, Cuda(), tmp_path, tmp_path)[0] == "the feeds have no input mask of the network"
    )
    assert "build" not in [call[0] for call in trt.calls]


def test_refuses_a_network_that_does_not_parse_by_node_and_operator(folder, tmp_path):
    assert (
        refused(TensorRT(parses=False), Cuda(), folder, tmp_path)[0]
        == "node /det (operator Det): no importer"
    )


def test_refuses_a_build_that_writes_no_cache_with_the_errors_alone(folder, tmp_path):
    assert refused(TensorRT(calibrates=False), Cuda(), folder, tmp_path)[0] == "calibration failed"


def test_calibrator_reads_what_it_wrote(tmp_path):
    made = entropy_calibrator(
        TensorRT(), DeviceBatches(Device(Cuda()), []), tmp_path / "made.cache"
    )
    assert made.read_calibration_cache() is None and made.get_batch(["ids"]) == []
    made.write_calibration_cache(bytearray(CACHE))
    assert made.read_calibration_cache() == CACHE


def test_process_prints_one_line(folder, tmp_path, capsys):
    arguments = ["net.onnx", str(folder), str(tmp_path / "made.cache")]
    cuda = Cuda()
    assert calibrator.main(arguments, lambda: (TensorRT(), cuda)) == 0
    said = json.loads(capsys.readouterr().out)
    assert said.pop("seconds") >= 0
    assert said == {"version": "10.16.1.11", "batches": 3, "reason": None}
    assert len(cuda.freed) == 2


def test_process_tells_a_gpu_that_cannot_be_had(folder, tmp_path, capsys):
    arguments = ["net.onnx", str(folder), str(tmp_path / "made.cache")]
    assert calibrator.main(arguments, lambda: (TensorRT(), Cuda(fails="cudaSetDevice"))) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["batches"] == 0 and "out of memory" in said["reason"]


def test_process_says_by_its_code_that_bindings_are_missing(folder, tmp_path, capsys):
    assert (
        calibrator.main(["net.onnx", str(folder), str(tmp_path / "made.cache")])
        == calibrator.MISSING
    )
    assert "tensorrt" in capsys.readouterr().err
