"""Whatever we touch of TensorRT and CUDA exists in NVIDIA's real Python bindings.

Nothing is built: the libraries are empty.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from container.tensorrt import surface as runtime
from engine_build.quantization import surface as calibration
from tests.bindings.installed import ROOT, Bindings, NotToBeHadError, bindings
from tests.bindings.touched import PROTOCOLS, UNKNOWN, Touch, touches

pytestmark = pytest.mark.bindings

BUILDS = {10: "10.16.1.11", 11: "11.4.0.106"}
ROOMS = {
    "engine_build/quantization": (10,),
    "engine_build/tensorrt": (10, 11),
    "container/tensorrt": (10, 11),
    "container/server/engines/tensorrt_plan.py": (10, 11),
}
"""Folders and files where TensorRT and CUDA are touched, and the majors that the code is for."""
SURFACES = {"engine_build/quantization": calibration} | dict.fromkeys(
    ("container/tensorrt", "container/server/engines/tensorrt_plan.py", "engine_build/tensorrt"),
    runtime,
)
PLAIN = {name for kind in (bytes, str, int, float, dict, list, tuple) for name in dir(kind)}
"""What values of Python's own have: a shape is a tuple, an error's words are bytes."""


@pytest.fixture(scope="session")
def installed(request) -> Bindings:
    try:
        return bindings(BUILDS[request.param])
    except NotToBeHadError as error:
        pytest.skip(str(error))


each_build = pytest.mark.parametrize(
    "installed", BUILDS, indirect=True, ids=[f"TensorRT {major}" for major in BUILDS]
)
the_last_with_calibrators = pytest.mark.parametrize(
    "installed", [10], indirect=True, ids=["TensorRT 10"]
)


def touched(major: int) -> list[Touch]:
    """Every touch in the rooms that are for a major."""
    rooms = [room for room, majors in ROOMS.items() if major in majors]
    return [touch for room in rooms for path in files(room) for touch in touches(path, ROOT)]


def files(room: str) -> list[Path]:
    """The Python files of a folder, or the file."""
    return [ROOT / room] if room.endswith(".py") else sorted((ROOT / room).rglob("*.py"))


def protocols(room: str) -> list[type]:
    """The surface of a room."""
    module = SURFACES[room]
    return [
        each
        for _, each in inspect.getmembers(module, inspect.isclass)
        if each.__module__ == module.__name__
    ]


def listed(room: str) -> list[str]:
    """Every name of a room's surface, by real path."""
    return [f"{real(each)}.{name}" for each in protocols(room) for name in members(each)]


def open_ended(room: str) -> tuple[str, ...]:
    """The names whose own names mypy cannot refuse: they are `Any`."""
    kinds = [
        (real(each), name, kind)
        for each in protocols(room)
        for name, kind in each.__annotations__.items()
    ]
    return tuple(f"{owner}.{name}." for owner, name, kind in kinds if kind == "Any")


def real(protocol: type) -> str:
    """The module or class that a protocol stands for."""
    name = protocol.__name__
    return PROTOCOLS.get(name) or f"{'cuda' if name.startswith('cuda') else 'tensorrt'}.{name}"


def members(protocol: type) -> list[str]:
    """What a protocol declares itself."""
    methods = [
        name
        for name, value in vars(protocol).items()
        if inspect.isfunction(value) and not name.startswith("_")
    ]
    return [*protocol.__annotations__, *methods]


def absent(found: list[Touch], installed: Bindings) -> list[Touch]:
    """The touches that the bindings have no name for."""

    def exists(path: str) -> bool:
        if not path.startswith(UNKNOWN):
            return installed.has(path)
        name = path.split(".")[-1]
        return name in PLAIN or installed.anywhere(name)

    return [touch for touch in found if not exists(touch.path)]


@each_build
def test_every_name_touched_exists(installed):
    major = int(installed.version.split(".")[0])
    found = touched(major)
    assert absent(found, installed) == []
    assert (major == 11) or {"tensorrt.BuilderFlag.INT8", "tensorrt.ILogger.Severity.ERROR"} <= {
        touch.path for touch in found
    }


@each_build
def test_every_name_of_the_surfaces_exists(installed):
    names = [
        name
        for room, majors in ROOMS.items()
        if int(installed.version.split(".")[0]) in majors
        for name in listed(room)
    ]
    assert len(names) > 20
    assert [name for name in names if not installed.has(name)] == []


@pytest.mark.parametrize("room", SURFACES)
def test_room_touches_nothing_beyond_its_surface(room):
    listing, opened = {*listed(room), *listed("container/tensorrt")}, open_ended(room)
    found = {touch.path for path in files(room) for touch in touches(path, ROOT)}
    known = {path for path in found if not path.startswith(UNKNOWN)}
    assert {path for path in known - listing if not path.startswith(opened)} == set()
    names = {path.split(".")[-1] for path in listing} | PLAIN
    assert {path.split(".")[-1] for path in found - known} - names == set()


@pytest.mark.parametrize("installed", [11], indirect=True, ids=["TensorRT 11"])
def test_tensorrt_11_has_no_calibrators_and_no_precision_flags(installed):
    gone = (
        "IInt8EntropyCalibrator2",
        "BuilderFlag.INT8",
        "BuilderFlag.FP16",
        "IBuilderConfig.int8_calibrator",
    )
    assert [name for name in gone if installed.has(f"tensorrt.{name}")] == []


SCRIPT = """
import json, sys
from pathlib import Path
import numpy as np
import tensorrt_bindings as trt
from cuda.bindings import runtime
from container.tensorrt.bindings import cuda_runtime, error_logger, tensorrt
from engine_build.quantization.calibrator import DeviceBatches, entropy_calibrator
assert (tensorrt(), cuda_runtime()) == (trt, runtime)
cache = Path(sys.argv[1])
made = entropy_calibrator(trt, DeviceBatches(None, []), cache)
logger = error_logger(trt)
severities = trt.ILogger.Severity
for severity in (severities.INFO, severities.ERROR, severities.INTERNAL_ERROR):
    logger.log(severity, f"said  as {severity.name}")
before = made.read_calibration_cache()
made.write_calibration_cache(memoryview(b"scales"))
print(json.dumps({
    "is": isinstance(made, trt.IInt8EntropyCalibrator2), "algorithm": made.get_algorithm().name,
    "batch": made.get_batch(["x"]), "size": made.get_batch_size(), "before": before,
    "after": made.read_calibration_cache().decode(), "errors": logger.errors,
}))
"""


@the_last_with_calibrators
def test_calibrator_is_one_of_the_real_base_class(installed, tmp_path):
    ended = installed.run("-c", SCRIPT, str(tmp_path / "made.cache"))
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


def test_touches_follow_modules_parameters_and_what_comes_of_them(tmp_path):
    (tmp_path / "source.py").write_text(SOURCE)
    assert [(touch.line, touch.path) for touch in touches(tmp_path / "source.py", tmp_path)] == [
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


@each_build
def test_refuses_names_that_nvidia_never_had(installed, tmp_path):
    (tmp_path / "source.py").write_text(SOURCE)
    names = [touch.path for touch in absent(touches(tmp_path / "source.py", tmp_path), installed)]
    assert names == [
        *("tensorrt.BuilderFlag.INT9", "?.tensor_names", "?.lower_case", "?.lengths", "?.octets"),
        *("tensorrt.IExecutionContext.set_shape", "?.opened"),
    ]


def test_refuses_pins_that_no_index_has(tmp_path):
    from tests.bindings import installed as module

    pins = tmp_path / "bindings-0.txt"
    pins.write_text(f"tensorrt-cu13-bindings==0.0.0.0 --hash=sha256:{'0' * 64}\n")
    with pytest.raises(NotToBeHadError, match=r"wheels of bindings-0.txt cannot be had"):
        module._fetch(pins, Path(tmp_path))
