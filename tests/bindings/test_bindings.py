"""Whatever we touch of TensorRT and CUDA exists in NVIDIA's real Python bindings.

Nothing is built: the libraries are empty.
"""

from __future__ import annotations

import inspect
import json

import pytest

from container.tensorrt import surface as runtime
from engine_build.quantization import surface as calibration
from tests.bindings.installed import ROOT, Bindings, UnavailableError, bindings, fetch
from tests.bindings.touched import PROTOCOLS, UNKNOWN, touches

pytestmark = pytest.mark.bindings

BUILDS = {10: "10.16.1.11", 11: "11.4.0.106"}
SOURCES = {
    "engine_build/quantization": (calibration, (10,)),
    "engine_build/tensorrt": (runtime, (10, 11)),
    "container/tensorrt": (runtime, (10, 11)),
    "container/server/engines/tensorrt_plan.py": (runtime, (10, 11)),
}
"""Folders and files where TensorRT and CUDA are touched, their surface, and the code's majors."""
PLAIN = {name for kind in (bytes, str, int, float, dict, list, tuple) for name in dir(kind)}
"""What values of Python's own have: a shape is a tuple, an error's words are bytes."""


@pytest.fixture(scope="session", params=BUILDS, ids=lambda major: f"TensorRT {major}")
def installed(request) -> Bindings:
    try:
        return bindings(BUILDS[request.param])
    except UnavailableError as error:
        pytest.skip(str(error))


def of_major(major):
    return pytest.mark.parametrize("installed", [major], indirect=True)


def sources_of(installed):
    major = int(installed.version.split(".")[0])
    return [source for source, (_, majors) in SOURCES.items() if major in majors]


def touched_paths(source):
    """The paths that a folder or file touches."""
    files = [ROOT / source] if source.endswith(".py") else (ROOT / source).rglob("*.py")
    return {path for file in files for _, path in touches(file)}


def protocols(source):
    """The classes of a source's surface, by real path."""
    module, _ = SOURCES[source]
    classes = inspect.getmembers(module, inspect.isclass)
    return {real(name): kind for name, kind in classes if kind.__module__ == module.__name__}


def real(name):
    """The module or class that a protocol stands for."""
    return PROTOCOLS.get(name, f"{'cuda' if name.startswith('cuda') else 'tensorrt'}.{name}")


def surface_paths(source):
    """Every name of a source's surface."""
    return {
        f"{path}.{name}"
        for path, kind in protocols(source).items()
        for name in (*kind.__annotations__, *vars(kind))
        if name in kind.__annotations__
        or (inspect.isfunction(vars(kind)[name]) and not name.startswith("_"))
    }


def absent(paths, installed):
    """The paths that the bindings have no name for."""

    def exists(path):
        if not path.startswith(UNKNOWN):
            return installed.has(path)
        name = path.split(".")[-1]
        return name in PLAIN or installed.anywhere(name)

    return [path for path in paths if not exists(path)]


def test_every_name_touched_exists(installed):
    paths = set().union(*map(touched_paths, sources_of(installed)))
    assert absent(paths, installed) == []
    if "engine_build/quantization" in sources_of(installed):
        assert {"tensorrt.BuilderFlag.INT8", "tensorrt.ILogger.Severity.ERROR"} <= paths


def test_every_name_of_the_surfaces_exists(installed):
    paths = set().union(*map(surface_paths, sources_of(installed)))
    assert len(paths) > 20
    assert [path for path in paths if not installed.has(path)] == []


@pytest.mark.parametrize("source", SOURCES)
def test_source_touches_nothing_beyond_its_surface(source):
    listed = surface_paths(source) | surface_paths("container/tensorrt")
    # Names below `Any` are those that mypy cannot refuse.
    untyped = tuple(
        f"{path}.{name}."
        for path, kind in protocols(source).items()
        for name, annotation in kind.__annotations__.items()
        if annotation == "Any"
    )
    paths = touched_paths(source)
    known = {path for path in paths if not path.startswith(UNKNOWN)}
    assert {path for path in known - listed if not path.startswith(untyped)} == set()
    names = {path.split(".")[-1] for path in listed} | PLAIN
    assert {path.split(".")[-1] for path in paths - known} - names == set()


@of_major(11)
@pytest.mark.parametrize(
    "name",
    [
        *("IInt8EntropyCalibrator2", "BuilderFlag.INT8", "BuilderFlag.FP16"),
        "IBuilderConfig.int8_calibrator",
    ],
)
def test_tensorrt_11_has_no_calibrators_and_no_precision_flags(installed, name):
    assert not installed.has(f"tensorrt.{name}")


SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import tensorrt_bindings as trt
from cuda.bindings import runtime
from container.tensorrt.bindings import cuda_runtime, error_logger, tensorrt
from engine_build.quantization.calibrator import DeviceBatches, entropy_calibrator
assert (tensorrt(), cuda_runtime()) == (trt, runtime)
calibrator = entropy_calibrator(trt, DeviceBatches(None, []), Path(sys.argv[1]))
logger = error_logger(trt)
severities = trt.ILogger.Severity
for severity in (severities.INFO, severities.ERROR, severities.INTERNAL_ERROR):
    logger.log(severity, f"said  as {severity.name}")
before = calibrator.read_calibration_cache()
calibrator.write_calibration_cache(memoryview(b"scales"))
print(json.dumps({
    "is": isinstance(calibrator, trt.IInt8EntropyCalibrator2),
    "algorithm": calibrator.get_algorithm().name,
    "batch": calibrator.get_batch(["x"]), "size": calibrator.get_batch_size(), "before": before,
    "after": calibrator.read_calibration_cache().decode(), "errors": logger.errors,
}))
"""


@of_major(10)
def test_calibrator_is_one_of_the_real_base_class(installed, tmp_path):
    ended = installed.run("-c", SCRIPT, str(tmp_path / "calibration.cache"))
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout) == {
        "is": True,
        "algorithm": "ENTROPY_CALIBRATION_2",
        "batch": [],
        "size": 1,
        "before": None,
        "after": "scales",
        "errors": ["said as ERROR", "said as INTERNAL_ERROR"],
    }


SOURCE = """
import importlib
from typing import Any
import tensorrt as trt
from cuda.bindings import runtime as cuda

def plain(path: str):
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(path.read_bytes())
    flag = trt.BuilderFlag.INT9
    for name in engine.tensor_names:
        path.anything, name.lower_case
    return cuda.cudaMalloc(engine.lengths[0].octets)

class Kept:
    def __init__(self, plan: object):
        self._context: IExecutionContext = plan.context()
        self._context.set_input_shape("ids", (1, 2)), self._context.set_shape

def given(builder: Any, other: str):
    other.strip, importlib.import_module("tensorrt_bindings").volume
    self._config = builder.create_builder_config()
    with self._config.opened as (first, second):
        first.depth
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "source.py"
    path.write_text(SOURCE)
    return path


def test_touches_follow_modules_parameters_and_what_comes_of_them(source):
    assert touches(source) == [
        (8, "tensorrt.Logger"),
        (8, "tensorrt.Runtime"),
        (8, "tensorrt.Runtime.deserialize_cuda_engine"),
        (9, "tensorrt.BuilderFlag"),
        (9, "tensorrt.BuilderFlag.INT9"),
        (10, "?.tensor_names"),
        (11, "?.lower_case"),
        (12, "?.lengths"),
        (12, "?.octets"),
        (12, "cuda.cudaMalloc"),
        (17, "tensorrt.IExecutionContext.set_input_shape"),
        (17, "tensorrt.IExecutionContext.set_shape"),
        (20, "tensorrt.volume"),
        (21, "?.create_builder_config"),
        (22, "?.opened"),
        (23, "?.depth"),
    ]


def test_refuses_names_that_nvidia_never_had(installed, source):
    assert absent([path for _, path in touches(source)], installed) == [
        *("tensorrt.BuilderFlag.INT9", "?.tensor_names", "?.lower_case", "?.lengths", "?.octets"),
        *("tensorrt.IExecutionContext.set_shape", "?.opened"),
    ]


def test_refuses_pins_that_no_index_has(tmp_path):
    pins = tmp_path / "bindings-0.txt"
    pins.write_text(f"tensorrt-cu13-bindings==0.0.0.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(UnavailableError, match=r"wheels of bindings-0.txt cannot be had"):
        fetch(pins, tmp_path)
