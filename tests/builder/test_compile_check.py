"""The compile check: what a child says, how it may die, and NVIDIA's own answer on real networks."""

from __future__ import annotations

import io

import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.compile_check import UNAVAILABLE, compile_checks, record_of
from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.networks import Network
from engine_build.runner import Ended, ProcessRunner
from onboarding.model_spec import OptimizationProfileSpec
from tests.builder.stand_ins import StandInRunner

PROFILES = (OptimizationProfileSpec(batch=(1, 2, 4), sequence=(4, 8, 16)),)


def checked(paths, runner):
    log = Log(io.StringIO())
    networks = [Network(precision=name, path=path, inputs=(), width=1, facts={}) for name, path in paths.items()]
    return compile_checks(networks, PROFILES, ProcessRunner(log) if runner is None else runner, log)


def test_compiler_that_crashes_is_a_failed_check():
    record = record_of("float", Ended(code=-11, output="", errors="Segmentation fault"))
    assert (record.verdict, record.reason) == ("fail", "the compiler was killed by signal 11 (Segmentation fault)")


def test_refuses_a_network_that_crashes_the_compiler(tmp_path):
    with pytest.raises(NetworkRefused, match="refuses the float network: the compiler was killed by signal 6"):
        checked({"float": tmp_path}, StandInRunner(check=Ended(code=-6, output="", errors="")))


def test_machine_without_the_compiler_has_no_record(tmp_path):
    assert checked({"float": tmp_path}, StandInRunner(check=Ended(code=UNAVAILABLE, output="", errors=""))) == ()


@pytest.mark.compile_check
def test_float_and_qdq_networks_compile(built):
    paths = sorted(built.store.glob("networks/*/*-model.onnx"))
    assert len(paths) == 2
    records = checked({path.parent.name: path for path in paths}, None)
    assert [record.verdict for record in records] == ["pass", "pass"]
    assert records[0].version.startswith("1.")


@pytest.mark.compile_check
def test_refuses_an_operator_by_node_and_name(tmp_path):
    node = helper.make_node("Det", ["x"], ["y"], name="/layer/det")
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"]),
    ]
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    onnx.save(model, tmp_path / "det.onnx")
    with pytest.raises(NetworkRefused, match=r"float network: .*/layer/det.*Det"):
        checked({"float": tmp_path / "det.onnx"}, None)
