"""The build of a GPU engine from checkpoint to archive.

Trtexec, nvidia-smi and TensorRT's runtime are stood in for.
"""

from __future__ import annotations

import dataclasses
import shutil
import tarfile

import pytest

from engine_build.build import build
from engine_build.pipeline import NETWORK_STEPS, run_steps
from engine_build.steps.benchmark import choose_candidate
from engine_build.steps.compile import check_machine, compile_candidates
from engine_build.steps.verify import verify_candidates
from engine_build.store import FolderStore
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tensorrt.gpu_machine import GpuMachine, install_runtime


class Both:
    """The GPU machine's programs run; what fetches and loads is answered."""

    def __init__(self, programs, answers):
        self.programs, self.answers = programs, answers
        self.find = programs.find

    def run(self, command):
        return (self.answers if command.argv[1:2] == ("-m",) else self.programs).run(command)


@pytest.fixture(scope="module")
def store(tiny_build, tmp_path_factory):
    """The networks of the fixture's build, and those that a test here has made."""
    folder = tmp_path_factory.mktemp("store")
    shutil.copytree(tiny_build.store / "networks", folder / "networks")
    return FolderStore(folder)


@pytest.fixture
def tools(store, wheel, tmp_path, monkeypatch):
    install_runtime(monkeypatch)
    tools = GpuMachine(tmp_path, monkeypatch).context("auto", store=store)
    return dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner(wheel)))


def test_gpu_engine_is_built_evaluated_and_packed(tools):
    with tools.work:
        result = build(tools)
        again = build(tools)
    manifest = result.entry.manifest
    assert (result.status, again.status) == ("built", "known")
    assert manifest.precision in ("fp16", "int8") and manifest.engine_file.endswith(".plan")
    machine = (manifest.plan.tensorrt, manifest.builder.gpu, manifest.builder.driver)
    assert machine == ("10.16.1.11", "NVIDIA A10G", "580.95.05")
    subjects = {record.subject for record in manifest.accuracy}
    assert subjects == {"int8 Q/DQ network", "fp16 engine", "int8 engine"}
    measured = {(record.runtime, record.precision) for record in manifest.benchmark}
    assert {("tensorrt", "fp16"), ("tensorrt", "int8")} <= measured
    with tarfile.open(tools.destination.path(result.entry.archive.path)) as tar:
        assert tar.extractfile(manifest.engine_file).read()[:4] == b"ftrt"


def test_auto_tries_fp8_where_the_gpu_computes_in_it(store, wheel, tmp_path, monkeypatch):
    install_runtime(monkeypatch)
    machine = GpuMachine(tmp_path, monkeypatch)
    machine.describe(gpus=["NVIDIA L4, 580.95.05, 8.9"])
    tools = machine.context("auto", store=store, instance="ml.g6.xlarge")
    tools = dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner(wheel)))
    with tools.work:
        manifest = build(tools).entry.manifest
    assert set(manifest.network_keys) == {"float", "int8", "fp8"}
    assert {"fp8 Q/DQ network", "fp16 engine", "int8 engine", "fp8 engine"} <= {
        record.subject for record in manifest.accuracy
    }
    assert {(item.candidate, item.baseline) for item in manifest.speedups} == {
        ("int8", "fp16"),
        ("fp8", "fp16"),
    }
    assert all(f"{name} is" in manifest.decision for name in ("int8", "fp8"))
    if manifest.precision != "fp16":
        assert manifest.quantization.precision == manifest.precision


def test_auto_compiles_fp32_where_fp16_misses_the_budget(tools):
    strict = {"metric": "relative_error", "budget": BudgetSpec(mean=0.9999)}
    accuracy = tools.request.model.accuracy.model_copy(update=strict)
    spec = tools.request.model.model_copy(update={"accuracy": accuracy})
    tools = dataclasses.replace(tools, request=dataclasses.replace(tools.request, model=spec))
    with tools.work:
        check_machine(tools.request, tools.runner)
        state = run_steps(tools, NETWORK_STEPS)
        state.candidates = compile_candidates(tools, state.networks)
        state.verified = verify_candidates(tools, state)
        chosen = choose_candidate(tools, state).chosen
    assert chosen.precision == "fp32" and "--noTF32" in chosen.plan.command
