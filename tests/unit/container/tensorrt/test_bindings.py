"""Libraries of plugins: real ones, loaded into this process or refused."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import pytest

from container.tensorrt.bindings import load_plugins
from container.tensorrt.faults import PlanRefused
from tests.fixtures.recorded_gpu.tensorrt import embedder
from tests.shared_libraries import of_aarch64, plugin
from tests.unit.container.engines.plan_archives import LONG, GpuMachine, text_archive

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")


@pytest.fixture
def library(tmp_path):
    """A plugin for a TensorRT that this process has loaded."""
    path = plugin(tmp_path / "libscale.so")
    ctypes.CDLL(str(tmp_path / "libnvinfer.so.10"))
    return path


def is_loaded(path):
    return str(path) in Path("/proc/self/maps").read_text()


def test_engine_loads_the_libraries_of_its_archive(library, tmp_path):
    archive = text_archive(tmp_path, embedder([LONG]), LONG, plugins=("libscale.so",))
    GpuMachine().open(archive)
    assert is_loaded(library)


def test_refuses_a_library_whose_tensorrt_is_not_loaded(tmp_path):
    path = plugin(tmp_path / "libscale.so", major=77)
    with pytest.raises(PlanRefused, match=r"plugin libscale.so cannot .*libnvinfer.so.77"):
        load_plugins([path])


def test_refuses_a_library_of_another_processor(library, tmp_path):
    path = tmp_path / "libother.so"
    path.write_bytes(of_aarch64(library))
    with pytest.raises(PlanRefused, match=r"plugin libother.so cannot be loaded \("):
        load_plugins([path])
