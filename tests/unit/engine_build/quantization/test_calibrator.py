"""The calibrator and its process; stand-ins play TensorRT and CUDA.

tests/bindings proves that the real ones have every name.
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
    feed_shapes,
    read_feeds,
)
from engine_build.steps.calibrate import save_feeds
from tests.fixtures.recorded_gpu.cuda import Error, RecordedCuda

CACHE = b"TRT-101601-EntropyCalibration2\nids: 3c010a14\n"
FEEDS = [
    {"ids": np.full((2, 4), row, dtype=np.int64), "mask": np.ones((2, 4), dtype=np.int64)}
    for row in range(3)
]


def failing_cuda(call):
    cuda = RecordedCuda()
    cuda.fails[call] = Error.cudaErrorMemoryAllocation
    return cuda


class Base:
    """A base class that must be initialised, as the bindings' must."""

    def __init__(self) -> None:
        self.initialised = True


class ILogger(Base):
    Severity = SimpleNamespace(ERROR=1)


class TensorRT:
    """Records its calls, and calibrates as TensorRT does: batches until none, then the cache."""

    __version__ = "10.16.1.11"
    ILogger = ILogger
    IInt8EntropyCalibrator2 = Base
    BuilderFlag = SimpleNamespace(INT8="INT8")
    LayerType = SimpleNamespace(CONVOLUTION="conv", DECONVOLUTION="deconv", MATRIX_MULTIPLY="mm")

    def __init__(self, *, parses=True, calibrates=True) -> None:
        self.calls: list[tuple] = []
        self.batches: list[list[int]] = []
        self._parses = parses
        self._calibrates = calibrates

    def OnnxParser(self, network, logger):
        error = SimpleNamespace(
            node_name=lambda: "/det", node_operator=lambda: "Det", desc=lambda: "no\n importer"
        )
        return SimpleNamespace(
            parse_from_file=lambda path: self.calls.append(("parse", path)) or self._parses,
            num_errors=1,
            get_error=[error].__getitem__,
        )

    def Builder(self, logger):
        inputs = [SimpleNamespace(name="ids"), SimpleNamespace(name="mask")]
        tensors = [SimpleNamespace(name="hidden"), None]
        layers = [
            SimpleNamespace(type=kind, num_inputs=2, get_input=read.__getitem__)
            for kind, read in (("mm", tensors), ("add", inputs), ("conv", [inputs[0], None]))
        ]
        network = SimpleNamespace(
            num_inputs=len(inputs),
            get_input=inputs.__getitem__,
            num_layers=len(layers),
            get_layer=layers.__getitem__,
        )
        return SimpleNamespace(
            create_network=lambda flags: self.calls.append(("network", flags)) or network,
            create_builder_config=lambda: SimpleNamespace(
                add_optimization_profile=self._record("profile"),
                set_calibration_profile=self._record("calibration profile"),
                set_flag=self._record("flag"),
            ),
            create_optimization_profile=lambda: SimpleNamespace(set_shape=self._record("shape")),
            build_serialized_network=lambda network, config: self._build(config, logger),
        )

    def _record(self, call):
        return lambda *arguments: self.calls.append(
            (call, *[value for value in arguments if isinstance(value, (str, tuple))])
        )

    def _build(self, config, logger):
        int8 = config.int8_calibrator
        assert int8.initialised and logger.initialised and int8.read_calibration_cache() is None
        self.calls.append(("build", config.builder_optimization_level, int8.get_batch_size()))
        while pointers := int8.get_batch(["ids", "mask"]):
            values = [ctypes.c_int64.from_address(pointer).value for pointer in pointers]
            self.batches.append(values)
        if not self._calibrates or len(self.batches) < len(FEEDS):
            logger.log(2, "a warning")
            logger.log(1, "calibration\n failed")
            return
        int8.write_calibration_cache(memoryview(CACHE))
        assert int8.read_calibration_cache() == CACHE


@pytest.fixture
def folder(tmp_path) -> Path:
    (tmp_path / "feeds").mkdir()
    save_feeds(FEEDS, tmp_path / "feeds")
    return tmp_path / "feeds"


def calibrate(trt, cuda, folder):
    """Why there is no cache, and the batches."""
    batches = DeviceBatches(Device(cuda), read_feeds(folder))
    cache = folder.parent / "int8.cache"
    shapes = feed_shapes(folder)
    reason = build_with_calibrator(trt, Path("net.onnx"), shapes, batches, cache, [])
    return reason, batches


def test_calibration_builds_for_int8_at_the_feeds_shape_and_keeps_the_cache(folder):
    trt, shape = TensorRT(), (2, 4)
    reason, batches = calibrate(trt, RecordedCuda(), folder)
    assert (reason, batches.served) == (None, 3)
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
    assert trt.batches == [[0, 1], [1, 1], [2, 1]]
    assert (folder.parent / "int8.cache").read_bytes() == CACHE


def test_device_memory_is_taken_once_an_input_and_given_back():
    cuda = RecordedCuda()
    device = Device(cuda)
    batches = DeviceBatches(device, FEEDS)
    first, second = batches.pointers(["mask", "ids"]), batches.pointers(["mask", "ids"])
    assert first == second == list(cuda.blocks)
    turned = np.arange(6, dtype=np.float32).reshape(2, 3).T
    (pointer,) = DeviceBatches(device, [{"x": turned}]).pointers(["x"])
    values = cuda.memory(pointer, 24).view(np.float32).tolist()
    assert values == [0, 3, 1, 4, 2, 5], "rows that are no single block are copied in order"
    device.close()
    assert cuda.blocks == {}


def test_feeds_survive_the_way_to_the_child(folder):
    for feed, expected in zip(read_feeds(folder), FEEDS, strict=True):
        for name, values in expected.items():
            np.testing.assert_array_equal(feed[name], values, strict=True)


@pytest.mark.parametrize("call", ["cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize"])
def test_refuses_a_gpu_that_fails_in_cudas_words(folder, call):
    reason, batches = calibrate(TensorRT(), failing_cuda(call), folder)
    assert "out of memory" in reason and reason.endswith("calibration failed")
    assert batches.served == 0 and batches.pointers(["ids", "mask"]) == []


@pytest.mark.parametrize(
    ("feeds", "names", "given", "fault"),
    [
        (
            [{"x": np.zeros((2, 2))}, {"x": np.zeros((1, 4))}, {"x": np.zeros((2, 2))}],
            ["x"],
            [1, 0, 0],
            "a batch of input 'x' has shape [1, 4], but the first had [2, 2]",
        ),
        ([{"x": np.zeros(4)}], ["x", "y"], [0], "the feeds have no input 'y' of the network"),
    ],
)
def test_refuses_a_batch_of_another_shape_or_without_an_input(feeds, names, given, fault):
    batches = DeviceBatches(Device(RecordedCuda()), feeds)
    assert [len(batches.pointers(names)) for _ in given] == given
    assert batches.fault == fault


@pytest.mark.parametrize(
    ("machine", "feeds", "reason"),
    [
        ({"parses": False}, FEEDS, "node /det (operator Det): no importer"),
        ({"calibrates": False}, FEEDS, "calibration failed"),
        ({}, [{"ids": np.zeros((1, 2))}], "the feeds have no input mask of the network"),
    ],
)
def test_refuses_a_network_in_tensorrts_own_errors(machine, feeds, reason, tmp_path):
    trt = TensorRT(**machine)
    save_feeds(feeds, tmp_path)
    assert calibrate(trt, RecordedCuda(), tmp_path)[0] == reason
    assert ("build" in [call[0] for call in trt.calls]) == (machine == {"calibrates": False})


def result(folder, cuda, capsys):
    """The line that the process prints."""
    arguments = ["net.onnx", str(folder), str(folder.parent / "int8.cache")]
    assert calibrator.main(arguments, lambda: (TensorRT(), cuda)) == 0
    return json.loads(capsys.readouterr().out)


def test_process_prints_one_line_or_the_fault_of_a_gpu(folder, capsys):
    cuda = RecordedCuda()
    line = result(folder, cuda, capsys)
    assert line.pop("seconds") >= 0
    assert line == {
        "version": "10.16.1.11",
        "batches": 3,
        "products": ["hidden", "ids"],
        "reason": None,
    }
    assert cuda.blocks == {} and cuda.streams == 0
    line = result(folder, failing_cuda("cudaSetDevice"), capsys)
    assert line["batches"] == 0 and "out of memory" in line["reason"]


def test_exit_code_says_that_bindings_are_missing(capsys):
    assert calibrator.main(["net.onnx", "feeds", "int8.cache"]) == calibrator.MISSING
    assert "tensorrt" in capsys.readouterr().err
