"""The calibration cache's bytes, and the step that finds or makes one."""

from __future__ import annotations

import dataclasses
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from engine_build.datasets.dataset import Samples, Shape
from engine_build.datasets.tensors import TensorEncoder
from engine_build.errors import InputRefused, NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.pipeline import NETWORK_STEPS, run_steps
from engine_build.quantization.calibration_cache import (
    cache_bytes,
    cache_path,
    parse_cache,
    read_cache,
    version_digits,
)
from engine_build.runner import Ended
from engine_build.steps.calibrate import calibrate_cache, calibrate_command
from engine_build.steps.compile import check_machine
from engine_build.steps.publish import network_files as published_networks
from engine_build.store import FolderStore
from onboarding.manifest import TensorRecord
from onboarding.model_spec import CalibrationSpec
from onboarding.platform import serving_platforms
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tensorrt.gpu_machine import GpuMachine
from tests.unit.engine_build.tiny import model, write_tree

# In the form of published caches: NVIDIA's MLPerf submissions (7.2.3), TAO networks (10.3.0) and a
# PyTorch export (8.5.1).
CAFFE = (
    "TRT-7203-EntropyCalibration2\ninput_tensor_0: 3f810204\nconv1_out_0: "
    "40d02b32\ntopk_layer_output_index: 410576ee\n"
)
KERAS = (
    "TRT-100300-EntropyCalibration2\ninput_1:0: 3c010a14\nconv1/convolution:0: "
    "3d0b7086\noutput_bbox/BiasAdd:0: 3da418a9\n"
)
ONNX = (
    "TRT-8510-MinMaxCalibration\nx: 4000890a\n/fc1/Gemm_output_0: 3e5312f6\n(Unnamed Layer* 25) "
    "[Softmax]_output: 3a58d0d6\n"
)
ODD = "TRT-101601-EntropyCalibration2\na: b: : 3c010a14\nzero: 00000000\nümlaut: 3e5312f6"
HEADER = "TRT-101601-EntropyCalibration2\n"


@pytest.mark.parametrize(
    "text", [CAFFE, KERAS, ONNX, ODD, HEADER], ids=["caffe", "keras", "onnx", "odd", "empty"]
)
def test_cache_comes_out_byte_for_byte(text, tmp_path):
    (tmp_path / "old.cache").write_bytes(text.encode())
    (tmp_path / "new.cache").write_bytes(cache_bytes(read_cache(tmp_path / "old.cache")))
    assert (tmp_path / "new.cache").read_bytes() == text.encode()


def test_cache_tells_scales_by_tensor_and_who_wrote_it():
    cache = parse_cache(KERAS.encode(), "a.cache")
    assert (cache.version, cache.algorithm, cache.ends_in_newline) == (
        "100300",
        "EntropyCalibration2",
        True,
    )
    assert list(cache.scales) == ["input_1:0", "conv1/convolution:0", "output_bbox/BiasAdd:0"]
    # An image of 0 to 1: the range is 127 scales.
    assert cache.scales["input_1:0"] * 127 == pytest.approx(1.0, rel=1e-3)


def test_name_ends_at_the_last_colon_and_blank():
    assert list(parse_cache(ODD.encode(), "a.cache").scales) == ["a: b: ", "zero", "ümlaut"]


def test_every_positive_float32_survives():
    words = np.random.default_rng(0).integers(0, 0x7F800000, 1000)
    text = HEADER + "".join(f"t{index}: {word:08x}\n" for index, word in enumerate(words))
    assert cache_bytes(parse_cache(text.encode(), "a.cache")) == text.encode()


@pytest.mark.parametrize(
    ("tensorrt", "digits"),
    [("10.16.1.11", "101601"), ("10.3.0.26", "100300"), ("8.5.1", "8501"), ("7.2.3.4", "7203")],
)
def test_version_has_the_digits_of_a_header(tensorrt, digits):
    assert version_digits(tensorrt) == digits


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("input 3c010a14", "allowed: <tensor>: <8 lower-case"),
        ("input: 3c010a1", "allowed: <tensor>: <8 lower-case"),
        ("input: 3C010A14", "allowed: <tensor>: <8 lower-case"),
        ("input: 0.0078", "allowed: <tensor>: <8 lower-case"),
        ("input: 3c010a14\r", "allowed: <tensor>: <8 lower-case"),
        (": 3c010a14", "allowed: <tensor>: <8 lower-case"),
        ("", "allowed: <tensor>: <8 lower-case"),
        ("input: 7fc00000", "this one is nan"),
        ("input: 7f800000", "this one is inf"),
        ("input: " + struct.pack("!f", -1.0).hex(), "this one is -1.0"),
        ("first: 3c010a14", "tensor 'first' has a line already"),
    ],
)
def test_refuses_a_malformed_line_by_its_number(line, words):
    text = f"{HEADER}first: 3c010a14\n{line}\nlast: 3c010a14\n"
    with pytest.raises(InputRefused, match=f"old.cache, line 3: .*{words}"):
        parse_cache(text.encode(), "old.cache")


@pytest.mark.parametrize(
    "data", [b"", b"TRT-8501\ninput: 3c010a14\n", b"input: 3c010a14\n", b"\x08\x00\x01"]
)
def test_refuses_a_file_without_the_header(data):
    with pytest.raises(
        InputRefused, match=r"old.cache, line 1: .*allowed: TRT-<version>-<algorithm>"
    ):
        parse_cache(data, "old.cache")


def test_refuses_bytes_that_are_no_text_by_their_line():
    with pytest.raises(InputRefused, match="line 2: it is no UTF-8 text"):
        parse_cache(HEADER.encode() + b"\xff: 3c010a14\n", "old.cache")


def test_refuses_a_cache_that_is_not_there(tmp_path):
    with pytest.raises(InputRefused, match=r"no.cache cannot be read"):
        read_cache(tmp_path / "no.cache")


class Calibrating(StandInRunner):
    """Plays the child process: looks at the batches and writes a cache, or ends some other way."""

    def __init__(
        self,
        text: str | None = HEADER + "x: 3c010a14\n",
        *,
        code: int = 0,
        reason: str | None = None,
        wheel=None,
    ) -> None:
        super().__init__(wheel)
        self._text = text
        self._code = code
        self._reason = reason
        self.batches: list[list[float]] = []

    def run(self, command):
        if command.argv[2] != "engine_build.quantization.calibrator":
            return super().run(command)
        self.commands.append(command)
        feeds, cache = Path(command.argv[4]), Path(command.argv[5])
        for path in sorted(feeds.iterdir()):
            with np.load(path) as file:
                self.batches.append(file[file.files[0]][:, 0].tolist())
        if self._text is not None:
            cache.write_text(self._text)
        said = {
            "version": "10.16.1.11",
            "batches": len(self.batches),
            "seconds": 1.0,
            "reason": self._reason,
        }
        return Ended(
            code=self._code,
            output="" if self._code else f"noise\n{json.dumps(said)}\n",
            errors="Segmentation fault",
        )


ENCODER = TensorEncoder((TensorRecord(name="x", datatype="FP32", shape=(-1, 3)),))


@pytest.fixture
def started(tmp_path):
    """A function that starts a build of a model with five samples, for the platform with TensorRT
    10.16.
    """

    def start(
        runner,
        *,
        platform="triton-26.05",
        method="entropy",
        store=None,
        out="out",
        compute_capability="8.6",
    ):
        tools = context(
            write_tree(tmp_path / "root", model("tiny")), tmp_path / out, store=store, runner=runner
        )
        spec = tools.request.model
        calibration = CalibrationSpec(
            dataset="models/data/calibration.txt", samples=5, method=method
        )
        request = dataclasses.replace(
            tools.request,
            platform=serving_platforms()[platform],
            compute_capability=compute_capability,
            quantization="calibration-cache",
            model=spec.model_copy(
                update={"engine": spec.engine.model_copy(update={"calibration": calibration})}
            ),
            network_keys={"float": "f" * 20, "int8": "8" * 20},
            calibration=Samples(
                values=tuple({"x": np.full(3, row, dtype=np.float32)} for row in range(5))
            ),
        )
        return dataclasses.replace(tools, request=request)

    return start


def made(tools):
    network = Network(precision="float", path=Path("float.onnx"), inputs=(), outputs=(), facts={})
    with tools.work:
        return calibrate_cache(tools, network, ENCODER)


def test_cache_is_made_of_all_samples_in_batches_of_one_shape(started):
    runner = Calibrating()
    tools = started(runner)
    path = made(tools)
    assert tools.request.opt_shape == Shape(batch=2, sequence=8)
    assert runner.batches == [[0, 1], [2, 3], [4, 4]]
    assert runner.commands[0].argv[1:4] == (
        "-m",
        "engine_build.quantization.calibrator",
        "float.onnx",
    )
    assert path.read_text() == HEADER + "x: 3c010a14\n"


def test_cache_lies_under_the_network_that_every_gpu_shares_and_is_found_again(started, tmp_path):
    tools = started(Calibrating())
    assert made(tools) == tmp_path / "out" / cache_path(tools.request)
    assert cache_path(tools.request) == f"networks/{'8' * 20}/calibration.cache"
    again = Calibrating()
    assert made(started(again)).is_file() and again.commands == []


def test_cache_of_the_store_is_copied_instead_of_made(started, tmp_path):
    store = FolderStore(tmp_path / "store")
    (tmp_path / "old.cache").write_text(KERAS.replace("100300", "101601"))
    runner = Calibrating()
    tools = started(runner, store=store)
    store.upload(tmp_path / "old.cache", cache_path(tools.request))
    assert read_cache(made(tools)).version == "101601"
    assert runner.commands == [] and tools.work_store.size(cache_path(tools.request)) is not None


@pytest.mark.parametrize("text", [KERAS, HEADER.replace("Entropy", "MinMax"), HEADER + "x: 3c01"])
def test_cache_that_this_tensorrt_would_refuse_is_made_anew(started, tmp_path, text):
    (tmp_path / "old.cache").write_text(text)
    runner = Calibrating()
    tools = started(runner)
    tools.work_store.upload(tmp_path / "old.cache", cache_path(tools.request))
    assert made(tools).read_text() == HEADER + "x: 3c010a14\n" and len(runner.commands) == 1


@pytest.mark.parametrize("platform", ["triton-26.06", "triton-24.10-cpu"])
def test_refuses_a_platform_without_calibrators_before_anything_runs(started, platform):
    runner = Calibrating()
    with pytest.raises(
        InputRefused,
        match="TensorRT 11 has no calibrators; set `quantization: explicit`, or turn an old cache",
    ):
        made(started(runner, platform=platform))
    assert runner.commands == []


def test_refuses_a_cpu(started):
    with pytest.raises(
        InputRefused, match="is for GPUs, but the engine is for a CPU; set `quantization: explicit`"
    ):
        made(started(Calibrating(), compute_capability="cpu"))


def test_refuses_what_no_cache_is_for_before_anything_is_fetched(started):
    tools = started(Calibrating(), platform="triton-26.06")
    with pytest.raises(InputRefused, match="TensorRT 11 has no calibrators"):
        check_machine(tools.request, tools.runner)


def test_refuses_a_method_that_trtexec_takes_no_cache_of(started):
    with pytest.raises(InputRefused, match=r"calibration method max of tiny .* allowed: entropy"):
        made(started(Calibrating(), method="max"))


def test_refuses_a_machine_without_bindings(started):
    with pytest.raises(InputRefused, match="bindings of TensorRT or CUDA are not on this machine"):
        made(started(Calibrating(None, code=3)))


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        (
            Calibrating(None, reason="node /det (operator Det): unsupported"),
            "node /det .operator Det.: unsupported; the log",
        ),
        (Calibrating(None), "no calibration cache: it wrote none"),
        (Calibrating(None, code=-11), "was killed by signal 11 .Segmentation fault."),
    ],
)
def test_refuses_a_calibration_that_failed_in_its_own_words(started, runner, words):
    with pytest.raises(NetworkRefused, match=words):
        made(started(runner))


def test_build_makes_a_cache_in_the_place_of_a_qdq_network_and_publishes_it(
    wheel, tmp_path, monkeypatch
):
    runner = Calibrating(wheel=wheel)
    calibration = {"dataset": "models/data/calibration.txt", "samples": 48, "method": "entropy"}
    tools = GpuMachine(tmp_path, monkeypatch).context(
        "int8", quantization="calibration-cache", calibration=calibration
    )
    tools = dataclasses.replace(tools, runner=runner)
    with tools.work:
        state = run_steps(tools, NETWORK_STEPS)
        published = [name for name, _ in published_networks(tools)]
    assert list(state.networks) == ["float"]
    assert len(runner.batches) == 48 / tools.request.opt_shape.batch
    assert cache_path(tools.request) in published


def test_command_runs_the_child_with_this_interpreter():
    argv = calibrate_command(Path("a.onnx"), Path("feeds"), Path("a.cache")).argv
    assert argv == (
        sys.executable,
        "-m",
        "engine_build.quantization.calibrator",
        "a.onnx",
        "feeds",
        "a.cache",
    )
