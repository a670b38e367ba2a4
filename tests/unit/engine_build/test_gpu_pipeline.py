"""The build of a GPU engine from checkpoint to archive.

Trtexec, nvidia-smi and TensorRT's runtime are stood in for.
"""

from __future__ import annotations

import dataclasses
import shutil
import tarfile

from engine_build.build import build
from engine_build.store import FolderStore
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tensorrt.gpu_machine import GpuMachine, install_runtime


class Both:
    """The GPU machine's programs run; what fetches and loads is answered."""

    def __init__(self, programs, answers):
        self.programs, self.answers = programs, answers
        self.find = programs.find

    def run(self, command):
        return (self.answers if command.argv[1:2] == ("-m",) else self.programs).run(command)


def test_auto_tries_what_the_gpu_computes_in_and_its_engine_is_built_and_packed(
    tiny_build, wheel, tmp_path, monkeypatch
):
    install_runtime(monkeypatch)
    shutil.copytree(tiny_build.store / "networks", tmp_path / "store/networks")
    machine = GpuMachine(tmp_path, monkeypatch)
    machine.describe(gpus=["NVIDIA L4, 580.95.05, 8.9"])
    store = FolderStore(tmp_path / "store")
    tools = machine.context("auto", store=store, instance="ml.g6.xlarge")
    tools = dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner(wheel)))
    with tools.work:
        result = build(tools)
        again = build(tools)
    manifest = result.entry.manifest
    assert (result.status, again.status) == ("built", "known")
    assert set(manifest.network_keys) == {"float", "int8", "fp8"}
    assert manifest.engine_file.endswith(".plan")
    described = (manifest.plan.tensorrt, manifest.builder.gpu, manifest.builder.driver)
    assert described == ("10.16.1.11", "NVIDIA L4", "580.95.05")
    engines = {"fp16 engine", "int8 engine", "fp8 engine"}
    subjects = {record.subject for record in manifest.accuracy}
    assert subjects == {"int8 Q/DQ network", "fp8 Q/DQ network", *engines}
    measured = {(record.runtime, record.precision) for record in manifest.benchmark}
    assert {("tensorrt", name) for name in ("fp16", "int8", "fp8")} <= measured
    assert {(item.candidate, item.baseline) for item in manifest.speedups} == {
        ("int8", "fp16"),
        ("fp8", "fp16"),
    }
    assert all(f"{name} is" in manifest.decision for name in ("int8", "fp8"))
    if manifest.precision != "fp16":
        assert manifest.quantization.precision == manifest.precision
    with tarfile.open(tools.destination.path(result.entry.archive.path)) as tar:
        assert tar.extractfile(manifest.engine_file).read()[:4] == b"ftrt"
