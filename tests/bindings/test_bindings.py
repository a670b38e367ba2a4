"""Whatever we touch of TensorRT and CUDA exists in NVIDIA's real Python bindings.

Nothing is built: the libraries are empty. mypy refuses names beyond the protocols of a surface.
"""

from __future__ import annotations

import inspect
import json

import pytest

from container.tensorrt import surface
from tests.bindings.installed import Bindings, UnavailableError, bindings

pytestmark = pytest.mark.bindings

BUILDS = {10: "10.16.1.11", 11: "11.4.0.106"}
MODULES = {"TensorRT": "tensorrt", "CudaRuntime": "cuda"}
"""Protocols that stand for modules."""


@pytest.fixture(scope="session", params=BUILDS, ids=lambda major: f"TensorRT {major}")
def installed(request) -> Bindings:
    try:
        return bindings(BUILDS[request.param])
    except UnavailableError as error:
        pytest.skip(str(error))


def of_major(major):
    return pytest.mark.parametrize("installed", [major], indirect=True)


def surface_paths():
    """Every name of the surface, by the real path of its module or class."""
    for name, kind in inspect.getmembers(surface, inspect.isclass):
        if kind.__module__ != surface.__name__:
            continue
        module = "cuda" if name.startswith("cuda") else "tensorrt"
        owner = MODULES.get(name, f"{module}.{name}")
        for member in (*kind.__annotations__, *vars(kind)):
            is_method = inspect.isfunction(vars(kind).get(member)) and not member.startswith("_")
            if member in kind.__annotations__ or is_method:
                yield f"{owner}.{member}"


def test_every_name_of_the_surface_exists_and_others_do_not(installed):
    paths = set(surface_paths())
    assert len(paths) > 20 and "tensorrt.Runtime" in paths
    wrong = "tensorrt.BuilderFlag.INT9"
    assert installed.missing([*paths, wrong]) == [wrong]


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
