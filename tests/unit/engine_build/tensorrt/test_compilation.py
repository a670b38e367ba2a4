"""The GPU steps of a build, with stand-ins for trtexec, nvidia-smi and TensorRT's runtime.

Among them a network with an operator of its own, from ONNX file to archive: a real library, loaded
by all; ONNX Runtime plays the operator's function where the plugin would compute it.
"""

from __future__ import annotations

import ctypes
import dataclasses
import hashlib
import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from engine_build.build import build
from engine_build.errors import InputRefused, NetworkRefused, PublishFailed
from engine_build.evaluation.runtimes import load_engine
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network
from engine_build.ort import OrtNetwork
from engine_build.steps.compile import (
    compile_candidates,
    difference,
    fallback,
    refuse_unfit_machine,
)
from engine_build.steps.fetch import run as run_fetch
from engine_build.steps.step import BuildState
from engine_build.store import FolderStore
from engine_build.tensorrt.compilation import TimingCache
from onboarding.names import timing_cache_path
from tests.shared_libraries import of_aarch64, plugin
from tests.unit.engine_build.graphs import DOMAIN, function
from tests.unit.engine_build.stand_ins import StandInRunner
from tests.unit.engine_build.tensorrt.gpu_machine import TINY, GpuMachine, feed, install_runtime
from tests.unit.engine_build.test_build import Both

CACHE = timing_cache_path("10.16.1.11", "NVIDIA A10G")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    return GpuMachine(tmp_path, monkeypatch)


@pytest.fixture
def processes(tmp_path, monkeypatch):
    """The same machine, whose programs run as processes."""
    return GpuMachine(tmp_path, monkeypatch, processes=True)


@pytest.fixture
def store(tmp_path):
    return FolderStore(tmp_path / "store")


def compiled(context, networks):
    with context.work:
        return compile_candidates(context, networks)


def log_of(context):
    return context.log._stream.getvalue()


def test_auto_compiles_fp16_and_int8_plans_that_are_read_back(machine, monkeypatch):
    context = machine.context()
    plain, int8 = compiled(context, machine.networks())
    assert [plain.precision, int8.precision] == ["fp16", "int8"]
    assert (plain.plan.tensorrt, plain.plan.int8_layers) == ("10.16.1.11", 0)
    assert int8.plan.int8_layers == 1 and int8.plan.layers > 10
    assert plain.plan.timing_cache_sha256 is not None
    assert plain.plan.command.startswith(
        "trtexec --onnx=network.onnx --saveEngine=model.plan --stronglyTyped --minShapes=input_ids:"
    )
    assert "int8: 0.0 MB of TensorRT 10.16.1.11" in log_of(context)
    assert "1.254 ms by trtexec at 2 x 8 without a CUDA graph" in log_of(context)
    install_runtime(monkeypatch)
    refuse_unfit_machine(context)
    answer = load_engine("tensorrt", plain.path).rows(feed(2, 8))
    assert np.allclose(answer, OrtNetwork(TINY).rows(feed(2, 8)), atol=2e-3)
    for candidate in (plain, int8):
        weights = onnx.load(candidate.path.with_name("network.onnx")).graph.initializer
        assert TensorProto.FLOAT16 in {weight.data_type for weight in weights}


def test_fallback_is_fp32_and_only_for_auto(machine):
    context = machine.context()
    with context.work:
        candidate = fallback(context, machine.networks())
    assert candidate.precision == "fp32" and "--noTF32" in candidate.plan.command
    fp16 = machine.context("fp16", out="fp16")
    with fp16.work:
        assert fallback(fp16, machine.networks()) is None


def test_engine_options_reach_trtexec(machine):
    options = {
        "optimization_level": 5,
        "workspace_mib": 1024,
        "hardware_compatibility": "same_compute_capability",
        "version_compatible": True,
    }
    context = machine.context("fp16", **options)
    (candidate,) = compiled(context, machine.networks())
    for flag in (
        "--builderOptimizationLevel=5",
        "--memPoolSize=workspace:1024M",
        "--hardwareCompatibilityLevel=sameComputeCapability",
        "--versionCompatible",
    ):
        assert flag in candidate.plan.command
    commands = [line for line in log_of(context).splitlines() if "$ trtexec" in line]
    (run,) = [line for line in commands if "--loadEngine" in line and "--shapes" in line]
    assert "--versionCompatible" in run


@pytest.fixture
def by_cache(machine):
    calibration = {"dataset": "models/data/calibration.txt", "samples": 48, "method": "entropy"}
    return machine.context("int8", quantization="calibration-cache", calibration=calibration)


def test_calibration_cache_is_given_to_trtexec(machine, by_cache):
    path = by_cache.work.store.path(by_cache.request.cache_path)
    path.parent.mkdir(parents=True)
    path.write_text("TRT-101601-EntropyCalibration2\ninput: 3c010a14\n")
    (candidate,) = compiled(by_cache, {"float": machine.networks()["float"]})
    assert "--int8 --fp16 --calib=calibration.cache" in candidate.plan.command
    assert candidate.plan.int8_layers == 3
    assert candidate.path.with_name("network.onnx").read_bytes() == TINY.read_bytes()


def test_parts_of_a_plan_that_is_right_are_compiled_with_its_options_and_do_not_differ(
    machine, monkeypatch
):
    context, networks = machine.context("fp16", optimization_level=2), machine.networks()
    with context.work:
        (candidate,) = compile_candidates(context, networks)
        install_runtime(monkeypatch)
        found = difference(context, networks, candidate, feed(2, 8))
    assert found.node is None and found.cuts > 1 and found.stopped is None
    commands = [line for line in log_of(context).splitlines() if "$ trtexec --onnx" in line]
    assert len(commands) == found.cuts + 1
    cache = context.work.path / "plans/timing.cache"
    for flag in (f"--timingCacheFile={cache}", "--builderOptimizationLevel=2", "--stronglyTyped"):
        assert all(flag in command for command in commands)


def test_refuses_int8_without_its_calibration_cache(machine, by_cache):
    with pytest.raises(InputRefused, match="there is no calibration cache"):
        compiled(by_cache, {"float": machine.networks()["float"]})


def test_finished_plans_are_reused_after_a_kill(machine):
    first = compiled(machine.context(), machine.networks())
    machine.describe(breaks_at="compile")
    again = machine.context()
    assert compiled(again, machine.networks()) == first
    log = log_of(again)
    assert "the plan of an earlier run is reused" in log and "--saveEngine" not in log


@pytest.mark.parametrize("change", ["record", "plan", "network", "option"])
def test_plan_that_is_not_the_same_is_compiled_anew(machine, change):
    networks = machine.networks()
    (candidate,) = compiled(machine.context("fp16"), networks)
    if change == "record":
        candidate.path.with_name("plan.json").write_text("{")
    if change == "plan":
        candidate.path.write_bytes(candidate.path.read_bytes()[:-1])
    if change == "network":
        networks = {"float": machine.network("float", networks["int8"].path)}
    again = machine.context("fp16", **({"optimization_level": 1} if change == "option" else {}))
    compiled(again, networks)
    assert "--saveEngine" in log_of(again)


def test_damaged_timing_cache_is_replaced(processes, store, tmp_path):
    (tmp_path / "damaged").write_bytes(b"damaged")
    store.upload(tmp_path / "damaged", CACHE)
    context = processes.context("fp16", store=store)
    (candidate,) = compiled(context, processes.networks())
    assert "the timing cache may be damaged: once more without it" in log_of(context)
    assert candidate.plan is not None and store.read(CACHE).startswith(b"timings")


@pytest.mark.parametrize(
    ("precision", "changes", "reason"),
    [
        (
            "fp16",
            {"breaks_at": "compile"},
            r"code 1 and gave no fp16 plan: Error Code 9: Skipping tactic .* memory; the log",
        ),
        ("fp16", {"breaks_at": "run"}, "does not run at its own opt shape .*illegal memory access"),
    ],
)
def test_refuses_a_plan_that_fails_or_is_another(machine, precision, changes, reason):
    machine.describe(**changes)
    with pytest.raises(NetworkRefused, match=reason):
        compiled(machine.context(precision), machine.networks())


NAME = timing_cache_path("10.16.1.11", "NVIDIA A10G")


class Unreachable(FolderStore):
    """A store that does not answer."""

    def read(self, name):
        raise PublishFailed("s3://bucket cannot be reached")

    def upload(self, path, name, *, only_if_absent=False):
        raise PublishFailed("s3://bucket cannot be reached")


@pytest.fixture
def stores(tmp_path):
    return FolderStore(tmp_path / "near"), FolderStore(tmp_path / "far")


@pytest.fixture
def cache(stores, tmp_path):
    return timing_cache(tmp_path, stores)


def timing_cache(tmp_path, stores, tensorrt="10.16.1.11", gpu="NVIDIA A10G", stream=None):
    log = Log(io.StringIO() if stream is None else stream)
    return TimingCache(stores, tensorrt, gpu, tmp_path / "timing.cache", log)


def put(store, data, tmp_path):
    (tmp_path / "put").write_bytes(data)
    store.upload(tmp_path / "put", NAME)


def test_nearest_stores_cache_is_fetched_and_reaches_all_of_them_once_it_is_uploaded(
    stores, cache, tmp_path
):
    assert not cache.fetch() and cache.sha256 is None
    put(stores[1], b"far", tmp_path)
    assert cache.fetch() and cache.path.read_bytes() == b"far"
    cache.upload()
    assert stores[0].read(NAME) is None  # unchanged, so it is not written again
    put(stores[0], b"near", tmp_path)
    assert cache.fetch() and cache.path.read_bytes() == b"near"
    with cache.path.open("r+b") as file:
        file.write(b"anew")
    assert stores[0].read(NAME) == b"near"
    cache.upload()
    assert [store.read(NAME) for store in stores] == [b"anew", b"anew"]
    for other in ({"tensorrt": "10.16.1.12"}, {"gpu": "NVIDIA L4"}):
        assert not timing_cache(tmp_path, stores, **other).fetch()


def test_store_that_does_not_answer_stops_nothing(tmp_path):
    stream = io.StringIO()
    cache = timing_cache(tmp_path, (Unreachable(tmp_path),), stream=stream)
    assert not cache.fetch()
    cache.path.write_bytes(b"new")
    cache.upload()
    assert stream.getvalue().count("cannot be reached") == 2


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
        archive = tools.work.store.path(f"engines/{tools.request.engine_key}/model.tar.gz")
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
