"""Which engines a process says it can serve, and which engine a manifest gets."""

from __future__ import annotations

from types import SimpleNamespace

import onnxruntime
import pytest

from container.archive import ArchiveRefused, EngineArchive, verify_archive
from container.server.engines.loading import (
    load_engine,
    running,
)
from container.tensorrt.faults import NoBindings
from onboarding.manifest import RuntimeIdentity
from tests.fixtures.recorded_gpu.tensorrt import embedder
from tests.fixtures.tiny_embedder.archive import ARITHMETIC, EMBEDDER, write_archive
from tests.unit.container.engines.plan_archives import GpuMachine, text_archive

ONNX, CUDA, PROVIDER = (
    RuntimeIdentity(name=name, version=onnxruntime.__version__)
    for name in ("onnxruntime", "onnxruntime-cuda", "onnxruntime-tensorrt")
)
TORCH = tuple(
    RuntimeIdentity(name=name, version="2.13.0") for name in ("pytorch", "pytorch-compile")
)
TENSORRT = RuntimeIdentity(name="tensorrt", version="10.16.1.11")
H200 = "9.0"
PROFILE = ((1, 2, 4), (4, 8, 16))


def installed():
    return SimpleNamespace(__version__="10.16.1.11"), SimpleNamespace()


def absent():
    raise NoBindings("cuda")


def on(
    gpu,
    *,
    providers=("CUDAExecutionProvider", "CPUExecutionProvider"),
    bindings=installed,
    torch=None,
):
    return running(
        lambda: gpu, providers=lambda: providers, installed=bindings, torch=lambda: torch
    )


def load(archive, **more):
    return load_engine(archive, **({"slots": None, "threads": None, "cores": 3} | more))


def test_machine_without_a_gpu_serves_cpu_engines_and_looks_for_no_bindings():
    def fail():
        raise AssertionError("TensorRT is imported where there is no GPU")

    runtimes = on(None, bindings=fail)
    assert runtimes.pairs == ((ONNX, "cpu"),)
    assert {runtimes.absences[name] for name in ("tensorrt", CUDA.name, PROVIDER.name)} == {
        "there is no NVIDIA GPU"
    }
    assert {runtimes.absences[item.name] for item in TORCH} == {"this Python has no torch"}


def test_gpu_machine_serves_what_it_has():
    providers = ("TensorrtExecutionProvider", "CUDAExecutionProvider")
    runtimes = on(H200, providers=providers, torch="2.13.0")
    torch = [(item, where) for item in TORCH for where in ("cpu", "9.0")]
    plans = [(CUDA, "9.0"), (PROVIDER, "9.0"), (TENSORRT, "9.0")]
    assert runtimes.pairs == ((ONNX, "cpu"), *torch, *plans)
    assert runtimes.absences == {}


def test_gpu_machine_says_what_it_lacks():
    runtimes = on(H200, providers=("CPUExecutionProvider",), bindings=absent)
    assert runtimes.pairs == ((ONNX, "cpu"),)
    assert runtimes.absences == {
        "onnxruntime-cuda": "this build of ONNX Runtime has no CUDAExecutionProvider",
        "onnxruntime-tensorrt": "this build of ONNX Runtime has no TensorrtExecutionProvider",
        **{item.name: "this Python has no torch" for item in TORCH},
        "tensorrt": "this Python has no cuda",
    }


@pytest.mark.parametrize(
    ("running_here", "reason"),
    [
        (on(None), r"runs onnxruntime \S+ \(there is no NVIDIA GPU\); build it for this platform"),
        (on(H200, bindings=absent), r"onnxruntime-cuda \S+ \(this Python has no cuda\)"),
        (on("8.6"), r"made for compute capability 9\.0, this server runs 8\.6;"),
    ],
)
def test_refuses_a_plan_that_this_machine_cannot_serve(tmp_path, running_here, reason):
    text_archive(tmp_path, embedder([PROFILE]), PROFILE)
    with pytest.raises(ArchiveRefused, match=reason):
        verify_archive(tmp_path, running=running_here, manifest_sha256=None)


@pytest.mark.parametrize("tiny", [EMBEDDER, ARITHMETIC])
def test_cpu_engine_has_a_slot_a_core(tmp_path, tiny):
    archive = EngineArchive(root=tmp_path, manifest=write_archive(tmp_path, tiny))
    assert load(archive).slots == 3
    assert load(archive, slots=1, threads=2).slots == 1


def test_plan_has_two_slots(tmp_path):
    machine = GpuMachine()
    archive = text_archive(tmp_path, embedder([PROFILE]), PROFILE)
    assert load(archive, installed=machine.installed).slots == 2
    assert load(archive, slots=1, installed=machine.installed).slots == 1


def test_refuses_an_onnx_engine_of_a_gpu_where_onnxruntime_has_none(tmp_path):
    archive = EngineArchive(
        root=tmp_path, manifest=write_archive(tmp_path, compute_capability="9.0")
    )
    with (
        pytest.raises(ValueError, match="has no CUDAExecutionProvider here"),
        pytest.warns(UserWarning),
    ):
        load(archive)
