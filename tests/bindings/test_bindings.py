"""Whatever we touch of TensorRT and CUDA exists in NVIDIA's real Python bindings.

Nothing is built: the libraries are empty.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.bindings.installed import Bindings, UnavailableError, bindings

pytestmark = pytest.mark.bindings

ROOT = Path(__file__).resolve().parents[2]

BUILDS = {10: "10.16.1.11", 11: "11.4.0.106"}
RUNTIME = ROOT / "container" / "tensorrt"
TOUCHED = {
    "device.py": (("cuda", r"_?cuda\.(cuda\w+(?:\.cuda\w+)*)"),),
    "bindings.py": (("tensorrt", r"\btrt\.([A-Z]\w+(?:\.[A-Z]\w+)*)"),),
    "context.py": (("tensorrt.IExecutionContext", r"self\._context\.(\w+)\("),),
    "plan.py": (
        ("tensorrt", r"\b_?trt\.(\w+(?:\.[A-Z]\w+)*)"),
        ("tensorrt.ICudaEngine", r"\b_?engine\.(\w+)"),
        ("tensorrt.IExecutionContext", r"\bcontext\.(\w+)\("),
        ("tensorrt.Runtime", r"\b_runtime\.(\w+)"),
    ),
}
"""By file: the real module or class, and how its names are written there."""


@pytest.fixture(scope="session", params=BUILDS, ids=lambda major: f"TensorRT {major}")
def installed(request) -> Bindings:
    try:
        return bindings(BUILDS[request.param])
    except UnavailableError as error:
        pytest.skip(str(error))


def of_major(major):
    return pytest.mark.parametrize("installed", [major], indirect=True)


def touched_names():
    """Every name of the bindings that the runtime's files write."""
    for file, owners in TOUCHED.items():
        text = (RUNTIME / file).read_text()
        for owner, pattern in owners:
            yield from (f"{owner}.{name}" for name in re.findall(pattern, text))


def test_every_name_that_is_touched_exists_and_others_do_not(installed):
    paths = set(touched_names())
    wanted = {"tensorrt.Runtime", "tensorrt.ICudaEngine.get_tensor_name", "cuda.cudaMallocHost"}
    assert len(paths) > 40 and wanted < paths
    wrong = "tensorrt.BuilderFlag.INT9"
    assert installed.missing(sorted({*paths, wrong})) == [wrong]


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
