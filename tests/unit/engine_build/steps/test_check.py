"""The compile check: what a child says, and how it may die."""

from __future__ import annotations

import io

import pytest

from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.runner import Ended
from engine_build.steps.check import UNAVAILABLE, check_record, compile_checks
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.stand_ins import StandInRunner

PROFILES = (OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16)),)


def check_networks(paths, runner):
    networks = [
        Network(precision=name, path=path, inputs=(), outputs=(), facts={})
        for name, path in paths.items()
    ]
    return compile_checks(networks, PROFILES, runner, Log(io.StringIO()))


def test_compiler_that_crashes_is_a_failed_check(tmp_path):
    network = Network(precision="float", path=tmp_path, inputs=(), outputs=(), facts={})
    record = check_record(network, Ended(code=-11, output="", errors="Segmentation fault"))
    assert record.verdict == "fail" and record.reason is not None
    assert record.reason.startswith(
        "the compiler was killed by signal 11 (Segmentation fault); export with another opset"
    )


def test_refuses_a_network_that_crashes_the_compiler(tmp_path):
    with pytest.raises(
        NetworkRefused, match="refuses the float network: the compiler was killed by signal 6"
    ):
        check_networks(
            {"float": tmp_path}, StandInRunner(check=Ended(code=-6, output="", errors=""))
        )


def test_machine_without_the_compiler_has_no_record_and_says_so(tmp_path):
    network, log = (
        Network(precision="float", path=tmp_path, inputs=(), outputs=(), facts={}),
        io.StringIO(),
    )
    runner = StandInRunner(
        check=Ended(code=UNAVAILABLE, output="", errors="No module named 'tensorrt_rtx'")
    )
    assert compile_checks([network], PROFILES, runner, Log(log)) == ()
    assert (
        "cannot be loaded here (No module named 'tensorrt_rtx'): the float network was NOT checked"
        in log.getvalue()
    )


def test_compiler_without_memory_says_so(tmp_path):
    network = Network(precision="float", path=tmp_path, inputs=(), outputs=(), facts={})
    record = check_record(network, Ended(code=-9, output="", errors=""))
    assert record.reason == (
        "the compiler was killed (it wrote no error), most often for want of memory: use a machine "
        "with more of it"
    )
