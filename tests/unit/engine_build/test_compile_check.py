"""The compile check: what a child says, and how it may die."""

from __future__ import annotations

import io

import pytest

from engine_build.compile_check import UNAVAILABLE, compile_checks, record_of
from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.networks import Network
from engine_build.runner import Ended
from onboarding.model_spec import OptimizationProfileSpec
from tests.unit.engine_build.stand_ins import StandInRunner

PROFILES = (OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16)),)


def checked(paths, runner):
    networks = [Network(precision=name, path=path, inputs=(), outputs=(), facts={}) for name, path in paths.items()]
    return compile_checks(networks, PROFILES, runner, Log(io.StringIO()))


def test_compiler_that_crashes_is_a_failed_check():
    record = record_of("float", Ended(code=-11, output="", errors="Segmentation fault"))
    assert (record.verdict, record.reason) == ("fail", "the compiler was killed by signal 11 (Segmentation fault)")


def test_refuses_a_network_that_crashes_the_compiler(tmp_path):
    with pytest.raises(NetworkRefused, match="refuses the float network: the compiler was killed by signal 6"):
        checked({"float": tmp_path}, StandInRunner(check=Ended(code=-6, output="", errors="")))


def test_machine_without_the_compiler_has_no_record(tmp_path):
    assert checked({"float": tmp_path}, StandInRunner(check=Ended(code=UNAVAILABLE, output="", errors=""))) == ()
