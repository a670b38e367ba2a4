"""Calibration caches: their bytes, the step that finds or makes one, and TensorRT's calibrator."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import re
import struct
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from container.tensorrt.device import Device
from engine_build.datasets.dataset import Samples, Shape
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.quantization import calibrator
from engine_build.quantization.calibrator import DeviceBatches
from engine_build.runner import Ended
from engine_build.steps.calibrate import (
    calibrate_cache,
    parse_cache,
    run,
    save_feeds,
    version_digits,
)
from engine_build.store import FolderStore
from onboarding.manifest import RuntimeIdentity
from onboarding.model_spec import CalibrationSpec
from onboarding.platform import serving_platforms
from tests.fixtures.recorded_gpu.cuda import Error, RecordedCuda
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.quantization import graphs
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_tree

HEADER = "TRT-101601-EntropyCalibration2\n"
WRITTEN = HEADER + "x: 3c010a14\n"
KERAS = "TRT-100300-EntropyCalibration2\ninput_1:0: 3c010a14\nconv1/convolution:0: 3d0b7086\n"


def test_every_positive_float32_survives_and_zero_is_one_digit_as_tensorrt_writes_it():
    words = np.random.default_rng(0).integers(0, 0x7F800000, 1000)
    text = HEADER + "".join(f"t{index}: {word:08x}\n" for index, word in enumerate(words))
    scales = parse_cache(text.encode(), "a.cache").scales.values()
    assert [struct.pack("!f", scale).hex() for scale in scales] == [f"{word:08x}" for word in words]
    assert parse_cache(f"{HEADER}onnx::Conv_633_output: 0\n".encode(), "a.cache").scales == {
        "onnx::Conv_633_output": 0
    }
    versions = ("10.16.1.11", "10.3.0.26", "8.5.1", "7.2.3.4")
    assert list(map(version_digits, versions)) == ["101601", "100300", "8501", "7203"]


ENTRY = "allowed: <tensor>: <8 lower-case"
HEADER_FAULT = r"line 1: .*allowed: TRT-<version>-<algorithm>"
MALFORMED = (
    *("input 3c010a14", "input: 3c010a1", "input: 3C010A14", "input: 0.0078", "input: 3c010a14\r"),
    *(": 3c010a14", "", "input: 7fc00000", "input: ff800000", "input: bf800000"),
    *("first: 3c010a14", "first: 7f800000", "\udcff: 3c010a14"),
)
FAULTS = [
    *((f"{HEADER}first: 3c010a14\n{line}\nlast: 0\n", f"line 3: .*{ENTRY}") for line in MALFORMED),
    *((text, HEADER_FAULT) for text in ("", "TRT-8501\ninput: 3c010a14\n", "\x08\x00\x01")),
]


@pytest.mark.parametrize(("data", "fault"), FAULTS, ids=range(len(FAULTS)))
def test_refuses_a_file_that_is_no_cache_by_its_line(data, fault):
    with pytest.raises(InputRefused, match=f"old.cache, {fault}"):
        parse_cache(data.encode(errors="surrogateescape"), "old.cache")


INFINITE = HEADER + "x: 3c010a14\nONNXTRT_Broadcast_578_output: 7f800000\nmask: 7f800000"


class Calibrating(StandInRunner):
    """Plays the child process: reads the batches and writes a cache, or ends some other way."""

    def __init__(self, text: str | None = WRITTEN, *, code=0, reason=None, wheel=None) -> None:
        super().__init__(wheel)
        self._text, self._code, self._reason = text, code, reason
        self.batches: list[list[float]] = []
        self.networks: list[onnx.ModelProto] = []

    def run(self, command):
        if command.argv[2] != "engine_build.quantization.calibrator":
            return super().run(command)
        self.commands.append(command)
        network, feeds, cache = map(Path, command.argv[3:])
        self.networks.append(onnx.load(network))
        for path in sorted(feeds.iterdir()):
            with np.load(path) as file:
                self.batches.append(file[file.files[0]][:, 0].tolist())
        if self._text is not None:
            cache.write_text(self._text)
        result = {"version": "10.16.1.11", "batches": len(self.batches), "seconds": 1.0}
        line = json.dumps(result | {"products": ["x"], "reason": self._reason})
        output = "" if self._code else f"noise\n{line}\n"
        return Ended(code=self._code, output=output, errors="Segmentation fault")


LEAST = np.finfo(np.float32).min
ENCODER = TensorEncoder((graphs.record("x", -1, 3),))


@pytest.fixture
def start(tmp_path):
    """A function that starts a build of a model with five samples, for TensorRT 10.16."""

    def start(runner, *, platform="triton-26.05", method="entropy", store=None, **changes):
        root = write_tree(tmp_path / "root", model("tiny"))
        tools = context(root, tmp_path / "out", store=store, runner=runner)
        spec = tools.request.model
        data = "models/data/calibration.txt"
        calibration = CalibrationSpec(dataset=data, samples=5, method=method)
        engine = spec.engine.model_copy(update={"calibration": calibration})
        rows = tuple({"x": np.full(3, row, dtype=np.float32)} for row in range(5))
        settings = {
            "platform": serving_platforms()[platform],
            "compute_capability": "8.6",
            "runtime": RuntimeIdentity(name="tensorrt", version="10.16.1.11"),
            "quantization": "calibration-cache",
            "model": spec.model_copy(update={"engine": engine}),
            "network_keys": {"float": "f" * 20, "int8": "8" * 20},
            "calibration": Samples(values=rows),
        }
        request = dataclasses.replace(tools.request, **settings | changes)
        return dataclasses.replace(tools, request=request)

    return start


@pytest.fixture
def network(tmp_path):
    """A MatMul, and a mask of FP32's least number."""
    path = write_graph(
        tmp_path / "float.onnx",
        [node("MatMul", "x w", "h"), node("Add", "h mask", "y")],
        [tensor("x", "batch", 3)],
        [tensor("y", "batch", 3)],
        w=np.eye(3, dtype=np.float32),
        mask=np.array([0, LEAST, 1e8], dtype=np.float32),
    )
    return graphs.network(path)


@pytest.fixture
def calibrate(network):
    def calibrate(tools):
        with tools.work:
            return calibrate_cache(tools, network, ENCODER)

    return calibrate


def test_cache_is_made_of_all_samples_in_batches_of_one_shape_and_reused(
    start, tmp_path, calibrate
):
    runner = Calibrating()
    tools = start(runner)
    path = calibrate(tools)
    assert tools.request.opt_shape == Shape(batch=2, sequence=8)
    assert runner.batches == [[0, 1], [2, 3], [4, 4]]
    (mask,) = (
        numpy_helper.to_array(weight)
        for weight in runner.networks[0].graph.initializer
        if weight.name == "mask"
    )
    assert mask.tolist() == [0, -3e4, 1e8]
    assert path.read_text() == WRITTEN
    # It lies under the network that every GPU shares.
    assert tools.request.cache_path == f"networks/{'8' * 20}/calibration.cache"
    assert path == tmp_path / "out" / tools.request.cache_path
    again = Calibrating()
    assert calibrate(start(again)).is_file() and again.commands == []


SOUND = KERAS.replace("100300", "101601")


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        (SOUND, True),
        (KERAS, False),
        (SOUND.replace("Entropy", "MinMax"), False),
        (HEADER + "x: 3c01", False),
        (INFINITE, False),
    ],
)
def test_cache_of_a_store_is_copied_unless_this_tensorrt_would_refuse_it(
    start, tmp_path, text, is_kept, calibrate
):
    store, runner = FolderStore(tmp_path / "store"), Calibrating()
    (tmp_path / "old.cache").write_text(text)
    tools = start(runner, store=store)
    store.upload(tmp_path / "old.cache", tools.request.cache_path)
    assert calibrate(tools).read_text() == (text if is_kept else WRITTEN)
    assert len(runner.commands) == (not is_kept)
    assert tools.work.store.size(tools.request.cache_path) is not None


@pytest.mark.parametrize(
    ("ending", "error", "fault"),
    [
        ({"code": 3}, InputRefused, "bindings of TensorRT or CUDA are not on this machine"),
        ({"reason": "node /det: unsupported"}, NetworkRefused, "node /det: unsupported; the log"),
        ({}, NetworkRefused, "no calibration cache: it wrote none"),
        ({"code": -11}, NetworkRefused, "was killed by signal 11 .Segmentation fault."),
    ],
)
def test_refuses_a_calibration_that_failed_in_its_own_words(start, ending, error, fault, calibrate):
    with pytest.raises(error, match=fault):
        calibrate(start(Calibrating(None, **ending)))


def test_infinite_scales_are_left_out_with_a_line_in_the_log_or_refused(start, calibrate):
    tools = start(Calibrating(HEADER + "x: 7f800000\n"))
    with pytest.raises(NetworkRefused, match=r"tensor x has an infinite scale.*explicit"):
        calibrate(tools)
    assert tools.work.store.size(tools.request.cache_path) is None
    tools = start(Calibrating(INFINITE))
    assert calibrate(tools).read_text().rstrip() == WRITTEN.rstrip()
    words = "read by no product: ONNXTRT_Broadcast_578_output, mask"
    assert words in tools.log._stream.getvalue()


@pytest.mark.parametrize(
    ("reason", "words", "runs"),
    [
        (None, "attention in INT8 by Q/DQ nodes alone", 0),
        ("node /det: unsupported", "node /det: unsupported", 1),
    ],
    ids=["attention", "failed"],
)
def test_auto_goes_on_without_a_cache_and_int8_is_refused(
    start, network, tmp_path, reason, words, runs
):
    if reason is None:
        onnx.save(graphs.transformer(), tmp_path / "transformer.onnx")
        network = dataclasses.replace(network, path=tmp_path / "transformer.onnx")
    runner = Calibrating(None, reason=reason)
    for precision in ("auto", "int8"):
        tools = start(runner)
        spec = tools.request.model
        engine = spec.engine.model_copy(update={"precision": precision})
        request = dataclasses.replace(
            tools.request, model=spec.model_copy(update={"engine": engine})
        )
        tools = dataclasses.replace(tools, request=request)
        state = SimpleNamespace(networks={"float": network}, encoder=ENCODER, refused={})
        with tools.work:
            if precision == "auto":
                run(tools, state)
                assert words in state.refused["int8"]
            else:
                with pytest.raises(NetworkRefused, match=words):
                    run(tools, state)
    assert len(runner.commands) == 2 * runs


CACHE = b"TRT-101601-EntropyCalibration2\nids: 3c010a14\n"
FEEDS = [
    {"ids": np.full((2, 4), row, dtype=np.int64), "mask": np.ones((2, 4), dtype=np.int64)}
    for row in range(3)
]


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
def calibrate_by_tensorrt(tmp_path, capsys):
    """Runs the process: the line that it prints, and the cache that it wrote."""
    (tmp_path / "feeds").mkdir()

    def run(trt, cuda, feeds=FEEDS):
        save_feeds(feeds, tmp_path / "feeds")
        cache = tmp_path / "int8.cache"
        arguments = ["net.onnx", str(tmp_path / "feeds"), str(cache)]
        assert calibrator.main(arguments, lambda: (trt, cuda)) == 0
        line = json.loads(capsys.readouterr().out)
        assert line.pop("seconds") >= 0 and line.pop("version") == "10.16.1.11"
        return line, cache.read_bytes() if cache.is_file() else None

    return run


def test_calibration_builds_for_int8_at_the_feeds_shape_and_keeps_the_cache(calibrate_by_tensorrt):
    trt, cuda, shape = TensorRT(), RecordedCuda(), (2, 4)
    line, cache = calibrate_by_tensorrt(trt, cuda)
    assert line == {"batches": 3, "products": ["hidden", "ids"], "reason": None}
    assert cache == CACHE and (cuda.blocks, cuda.streams) == ({}, 0)
    assert trt.batches == [[0, 1], [1, 1], [2, 1]]
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


def test_rows_that_are_no_single_block_are_copied_in_order():
    cuda, turned = RecordedCuda(), np.arange(6, dtype=np.float32).reshape(2, 3).T
    (pointer,) = DeviceBatches(Device(cuda), [{"x": turned}]).pointers(["x"])
    assert cuda.memory(pointer, 24).view(np.float32).tolist() == [0, 3, 1, 4, 2, 5]


@pytest.mark.parametrize(
    ("machine", "fails", "feeds", "reason"),
    [
        ({"parses": False}, None, FEEDS, "node /det .operator Det.: no importer"),
        ({"calibrates": False}, None, FEEDS, "calibration failed"),
        ({}, None, [{"ids": np.zeros((1, 2))}], "the feeds have no input mask of the network"),
        ({}, "cudaSetDevice", FEEDS, "out of memory"),
        ({}, "cudaMalloc", FEEDS, "out of memory.*; calibration failed"),
        ({}, "cudaMemcpyAsync", FEEDS, "out of memory.*; calibration failed"),
    ],
)
def test_refuses_in_tensorrts_and_cudas_own_words(
    machine, fails, feeds, reason, calibrate_by_tensorrt
):
    trt, cuda = TensorRT(**machine), RecordedCuda()
    if fails is not None:
        cuda.fails[fails] = Error.cudaErrorMemoryAllocation
    line, cache = calibrate_by_tensorrt(trt, cuda, feeds)
    assert re.search(reason, line["reason"]) and cache is None
    assert line["batches"] == (3 if machine == {"calibrates": False} else 0)


def test_exit_code_says_that_bindings_are_missing(capsys):
    assert calibrator.main(["net.onnx", "feeds", "int8.cache"]) == calibrator.MISSING
    assert "tensorrt" in capsys.readouterr().err
