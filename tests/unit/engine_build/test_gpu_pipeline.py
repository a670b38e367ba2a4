"""The build of a GPU engine from checkpoint to archive.

Trtexec, nvidia-smi and TensorRT's runtime are stood in for.
"""

from __future__ import annotations

import dataclasses
import tarfile

import pytest

from engine_build.build import build
from engine_build.pipeline import NETWORK_STEPS, run_steps
from engine_build.steps.benchmark import choose_candidate
from engine_build.steps.compile import check_machine, compile_candidates
from engine_build.steps.verify import verify_candidates
from onboarding.model_spec import BudgetSpec
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tensorrt.gpu_machine import GpuMachine, install_runtime


class Both:
    """The GPU machine's programs run; what fetches and loads is answered."""

    def __init__(self, programs, answers):
        self.programs, self.answers = programs, answers

    def find(self, program):
        return self.programs.find(program)

    def run(self, command):
        return (self.answers if command.argv[1:2] == ("-m",) else self.programs).run(command)


@pytest.fixture
def context(wheel, tmp_path, monkeypatch):
    def made(precision, **engine):
        tools = GpuMachine(tmp_path, monkeypatch).context(precision, **engine)
        return dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner(wheel)))

    install_runtime(monkeypatch)
    return made


def evaluation(tools):
    with tools.work:
        check_machine(tools.request, tools.runner)
        state = run_steps(tools, NETWORK_STEPS)
        state.candidates = compile_candidates(tools, state.networks)
        state.verified = verify_candidates(tools, state)
        return choose_candidate(tools, state)


def test_gpu_engine_is_built_judged_and_packed(context):
    tools = context("auto")
    with tools.work:
        result = build(tools)
        again = build(tools)
    manifest = result.entry.manifest
    assert (result.status, again.status) == ("built", "known")
    assert manifest.precision in ("fp16", "int8") and manifest.engine_file.endswith(".plan")
    assert (manifest.plan.tensorrt, manifest.builder.gpu, manifest.builder.driver) == (
        "10.16.1.11",
        "NVIDIA A10G",
        "580.95.05",
    )
    assert {each.subject for each in manifest.accuracy} == {
        "int8 Q/DQ network",
        "fp16 engine",
        "int8 engine",
    }
    assert {("tensorrt", "fp16"), ("tensorrt", "int8")} <= {
        (each.runtime, each.precision) for each in manifest.benchmark
    }
    with tarfile.open(tools.work_store.path(result.entry.archive.path)) as tar:
        assert tar.extractfile(manifest.engine_file).read()[:4] == b"ftrt"


def test_auto_compiles_fp32_where_fp16_misses_the_budget(context):
    tools = context("auto")
    strict = {"metric": "relative_error", "budget": BudgetSpec(mean=0.9999)}
    wish = tools.request.model.model_copy(
        update={"accuracy": tools.request.model.accuracy.model_copy(update=strict)}
    )
    found = evaluation(
        dataclasses.replace(tools, request=dataclasses.replace(tools.request, model=wish))
    )
    assert found.chosen.precision == "fp32" and "--noTF32" in found.chosen.plan.command
