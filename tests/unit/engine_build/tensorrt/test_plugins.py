"""A network with an operator of its own, from ONNX file to archive: a real library, loaded by all.

Trtexec and TensorRT's runtime are stood in for: ONNX Runtime plays the operator's function where
the plugin would compute it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import shutil
import tarfile
from pathlib import Path

import onnx
import pytest
from onnx import helper

from engine_build.build import build
from engine_build.errors import NetworkRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.compile import compile_candidates
from engine_build.steps.fetch import run as run_fetch
from engine_build.steps.step import BuildState
from tests.shared_libraries import of_aarch64, plugin
from tests.unit.engine_build.custom import DOMAIN, function
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, GpuMachine, install_runtime
from tests.unit.engine_build.test_gpu_pipeline import Both

LIBRARY = "models/libscale.so"


def scaled_embedder(path):
    """The tiny embedder with a Scale behind its first Add."""
    model = onnx.load(TINY)
    nodes = model.graph.node
    index = next(index for index, node in enumerate(nodes) if node.op_type == "Add")
    output, nodes[index].output[0] = nodes[index].output[0], "before"
    nodes.insert(index + 1, helper.make_node("Scale", ["before"], [output], domain=DOMAIN, by=0.5))
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    model.functions.append(function("Scale"))
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path


class Subject:
    """A tree with the subject embedder and a library, and a machine that builds it."""

    def __init__(self, folder: Path, monkeypatch) -> None:
        self.machine = GpuMachine(folder, monkeypatch, processes=True)
        self.network = scaled_embedder(folder / "root/models/data/scaled.onnx")
        shutil.copyfile(TINY.with_name("tokenizer.json"), self.network.with_name("tokenizer.json"))
        self.library = plugin(folder / "root" / LIBRARY)
        # As the real trtexec and the real bindings do, before any plugin.
        monkeypatch.setenv("LD_LIBRARY_PATH", str(self.library.parent))
        ctypes.CDLL(str(self.library.with_name("libnvinfer.so.10")))
        self.machine.describe(functions=str(self.network))

    def context(self, precision="fp16", **changes):
        digest = hashlib.sha256(self.library.read_bytes()).hexdigest()
        declared = {"file": LIBRARY, "sha256": digest, "operators": ["Scale"]}
        network = hashlib.sha256(self.network.read_bytes()).hexdigest()
        source = {"onnx": "models/data/scaled.onnx", "sha256": network}
        return self.machine.context(
            precision,
            plugins=[declared | changes.pop("plugin", {})],
            changes={"source": source, "serving": {"server": "python"}, **changes},
        )

    def float_network(self) -> dict[str, Network]:
        return {"float": self.machine.network("float", self.network)}


@pytest.fixture
def subject(tmp_path, monkeypatch):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    return Subject(tmp_path, monkeypatch)


def libraries():
    """What this process has mapped."""
    return Path("/proc/self/maps").read_text()


def test_engine_with_a_plugin_is_built_compared_and_packed(subject, monkeypatch):
    install_runtime(monkeypatch)
    tools = subject.context("auto")
    tools = dataclasses.replace(tools, runner=Both(tools.runner, StandInRunner()))
    with tools.work:
        manifest = build(tools).entry.manifest
        archive = tools.work_store.path(f"engines/{tools.request.engine_key}/model.tar.gz")
    assert manifest.plugins == ("libscale.so",)
    assert manifest.files["libscale.so"] == tools.request.plugins[0].sha256
    assert "--staticPlugins=libscale.so" in manifest.plan.command
    assert {record.verdict for record in manifest.accuracy} == {"pass"}
    assert str(tools.work.path) in libraries() and "libscale.so" in libraries()
    with tarfile.open(archive) as tar:
        assert tar.extractfile("libscale.so").read() == subject.library.read_bytes()


def test_refuses_a_plan_whose_library_does_not_load(subject):
    tools = subject.context()
    with tools.work:
        run_fetch(tools, BuildState(tools))
        for path in tools.plugins:
            path.write_bytes(of_aarch64(path))
        with pytest.raises(NetworkRefused, match="gave no fp16 plan: Could not load library"):
            compile_candidates(tools, subject.float_network())
