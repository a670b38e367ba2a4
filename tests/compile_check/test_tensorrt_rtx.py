"""NVIDIA's own parser and builder on real networks, with no GPU.

TensorRT-RTX compiles or refuses them.
"""

from __future__ import annotations

import io
import json

import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.errors import NetworkRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.runner import ProcessRunner
from engine_build.steps.check import compile_checks
from onboarding.lock import LockEntry
from tests.unit.engine_build.steps.test_check import PROFILES
from tests.unit.engine_build.test_command import arguments, engine_build
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check


def check_networks(paths):
    log = Log(io.StringIO())
    networks = [
        Network(precision=name, path=path, inputs=(), outputs=(), facts={})
        for name, path in paths.items()
    ]
    return compile_checks(networks, PROFILES, ProcessRunner(log), log)


def test_command_builds_for_real_and_then_knows_the_key(wheel, tmp_path):
    root, store = write_tree(tmp_path / "root", model("tiny", "fp32")), tmp_path / "store"
    order = arguments(root, tmp_path / "out", "--publish", store, "--format", "json")
    ended = engine_build(
        *order, PIP_FIND_LINKS=str(wheel.parent), ROUNDHOUSE_SOURCE_COMMIT="c0ffee"
    )
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    entry = LockEntry.model_validate_json(
        (store / f"engines/{said['engine_key']}/lock-entry.json").read_bytes()
    )
    assert (said["status"], said["archive"]["sha256"]) == ("built", entry.archive.sha256)
    assert entry.manifest.builder.source_commit == "c0ffee"
    assert entry.manifest.compile_checks[0].verdict == "pass" and entry.manifest.host_memory_mib > 0
    assert "pip download" in (tmp_path / "out/reproduce.sh").read_text()
    again = engine_build(
        *arguments(root, tmp_path / "out2", "--publish", store, "--format", "json")
    )
    assert json.loads(again.stdout)["status"] == "known"


def test_float_and_qdq_networks_compile(built):
    paths = sorted(built.store.glob("networks/*/*-model.onnx"))
    assert len(paths) == 2
    records = check_networks({path.parent.name: path for path in paths})
    assert [record.verdict for record in records] == ["pass", "pass"]
    assert records[0].version.startswith("1.")


def test_refuses_an_operator_by_node_and_name(tmp_path):
    node = helper.make_node("Det", ["x"], ["y"], name="/layer/det")
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 3]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch"]),
    ]
    model = helper.make_model(
        helper.make_graph([node], "g", values[:1], values[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.save(model, tmp_path / "det.onnx")
    with pytest.raises(NetworkRefused, match=r"float network: .*/layer/det.*Det"):
        check_networks({"float": tmp_path / "det.onnx"})
