"""NVIDIA's own parser and builder on the networks of whole builds, with no GPU."""

from __future__ import annotations

import json

import pytest

from onboarding.lock import LockEntry
from tests.compile_check.builds import assert_compiles, run_build
from tests.unit.engine_build.tiny import model, write_tree

pytestmark = pytest.mark.compile_check


def test_command_builds_for_real_and_then_knows_the_key(wheel, tmp_path):
    root, store = write_tree(tmp_path / "root", model("tiny", "fp32")), tmp_path / "store"
    environment = {"PIP_FIND_LINKS": str(wheel.parent), "ROUNDHOUSE_SOURCE_COMMIT": "c0ffee"}
    ended = run_build(root, tmp_path / "out", store, "--format", "json", **environment)
    assert ended.returncode == 0, ended.stderr
    result = json.loads(ended.stdout)
    path = store / f"engines/{result['engine_key']}/lock-entry.json"
    entry = LockEntry.model_validate_json(path.read_bytes())
    assert (result["status"], result["archive"]["sha256"]) == ("built", entry.archive.sha256)
    manifest = entry.manifest
    assert manifest.builder.source_commit == "c0ffee"
    assert manifest.compile_checks[0].verdict == "pass" and manifest.host_memory_mib > 0
    assert "pip download" in (tmp_path / "out/reproduce.sh").read_text()
    again = run_build(root, tmp_path / "again", store, "--format", "json")
    assert json.loads(again.stdout)["status"] == "known"


def test_published_network_of_a_cpu_build_compiles(tiny_build):
    (path,) = tiny_build.store.glob("networks/*/*-model.onnx")
    assert_compiles(path)
