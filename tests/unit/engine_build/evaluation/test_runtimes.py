"""Which runtimes a machine has, why it lacks the rest, and rows of those it has.

The network is two multiplications, and a module does the same.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch

from engine_build.errors import SourceFault
from engine_build.evaluation.footprint import load_measured
from engine_build.evaluation.runtimes import (
    ON_CPU,
    ORDER,
    Artifacts,
    Probes,
    TorchModule,
    import_runtime,
    load_engine,
    machine_runtimes,
    missing_runtimes,
    runnable,
)
from engine_build.ort import BoundNetwork
from tests.unit.engine_build.graphs import node, tensor, write_graph


def runtimes(*, modules=("torch", "onnxruntime"), gpu=False, providers=(), cuda=False):
    probes = Probes(
        has_module=lambda name: name in modules,
        has_gpu=lambda: gpu,
        providers=lambda: providers,
        torch_has_cuda=lambda: cuda,
    )
    return machine_runtimes(probes)


def test_machine_without_a_gpu_lacks_what_needs_one():
    assert missing_runtimes(runtimes()) == (
        "not on this machine: onnxruntime CUDA (no NVIDIA GPU), pytorch CUDA (no NVIDIA GPU), "
        "tensorrt (no NVIDIA GPU)"
    )


def test_machine_with_everything_lacks_nothing():
    modules, providers = ("torch", "onnxruntime", "tensorrt"), ("CUDAExecutionProvider",)
    whole = runtimes(modules=modules, gpu=True, providers=providers, cuda=True)
    assert missing_runtimes(whole) is None and set(whole) == set(ORDER)


@pytest.mark.parametrize(
    ("modules", "reasons"),
    [
        (
            ("torch", "onnxruntime"),
            {
                "onnxruntime CUDA": "its build has no CUDAExecutionProvider",
                "pytorch CUDA": "torch sees no GPU",
                "tensorrt": "no package tensorrt",
            },
        ),
        (
            (),
            {
                "onnxruntime": "no package onnxruntime",
                "onnxruntime CUDA": "no package onnxruntime",
                "pytorch": "no package torch",
                "pytorch CUDA": "no package torch",
                "tensorrt": "no package tensorrt",
            },
        ),
    ],
)
def test_gpu_machine_says_what_its_software_lacks(modules, reasons):
    lacks = runtimes(modules=modules, gpu=True)
    assert {name: reason for name, reason in lacks.items() if reason is not None} == reasons


def test_this_machine_has_onnxruntime():
    assert machine_runtimes()["onnxruntime"] is None


EVERYTHING = dict.fromkeys(ORDER)
CPU_MACHINE = {name: None if name in ON_CPU else "no NVIDIA GPU" for name in ORDER}
WEIGHT = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)


class Module(torch.nn.Module):
    """x @ weight, and its double."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.from_numpy(WEIGHT))

    def forward(self, x):
        return x @ self.weight, 2 * (x @ self.weight)


class Source:
    """What a build would have loaded."""

    inputs = ("x",)
    module = Module().eval()

    def rows(self, feed):
        return TorchModule(self.module, self.inputs, device="cpu").rows(feed)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    path = tmp_path_factory.mktemp("network") / "model.onnx"
    outputs = [tensor(name, "batch", 3) for name in "ab"]
    nodes = [node("MatMul", "x w", "a"), node("Add", "a a", "b")]
    return write_graph(path, nodes, [tensor("x", "batch", 8)], outputs, w=WEIGHT)


def test_every_runtime_gives_the_same_rows(network):
    feed = {"x": np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)}
    expected = np.concatenate([feed["x"] @ WEIGHT, 2 * (feed["x"] @ WEIGHT)], axis=1)
    engines = [load_engine("onnxruntime", network), BoundNetwork(network, device="cpu"), Source()]
    for engine in engines:
        assert engine.rows(feed) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    half = TorchModule(Source.module, ("x",), device="cpu", half=True).rows(feed)
    assert half.dtype == np.float32 and half == pytest.approx(expected, abs=0.02)
    assert next(Source.module.parameters()).dtype == torch.float32, "the source stays as it was"


def test_subjects_are_what_the_machine_has_the_gpus_first(network, tmp_path):
    plans = {"fp16": tmp_path / "fp16.plan"}
    artifacts = Artifacts(networks={"fp32": network}, plans=plans, source=Source())
    subjects = runnable(artifacts, EVERYTHING)
    assert [(subject.runtime, subject.precision) for subject in subjects] == [
        ("tensorrt", "fp16"),
        ("onnxruntime CUDA", "fp32"),
        ("pytorch CUDA", "fp32"),
        ("pytorch CUDA", "fp16"),
        ("onnxruntime", "fp32"),
        ("pytorch", "fp32"),
    ]
    on_cpu = [subject.runtime for subject in runnable(artifacts, CPU_MACHINE)]
    assert on_cpu == ["onnxruntime", "pytorch"]


def test_footprint_counts_what_loading_added_to_the_gpu(network):
    used = iter((100.0, 164.0))
    _, footprint = load_measured(
        lambda: load_engine("onnxruntime", network),
        {"x": np.ones((1, 8), np.float32)},
        device_mib=lambda: next(used),
    )
    assert footprint.device_memory_mib == 64.0 and footprint.load_seconds >= 0


def test_refuses_a_provider_that_this_onnxruntime_lacks(network):
    with pytest.raises(SourceFault, match="CUDAExecutionProvider"):
        BoundNetwork(network, device="cuda")


@pytest.mark.parametrize(
    ("packages", "imported"),
    [(["tensorrt_bindings"], "tensorrt_bindings"), (["tensorrt", "tensorrt_bindings"], "tensorrt")],
)
def test_tensorrt_is_imported_under_one_of_its_names(tmp_path, monkeypatch, packages, imported):
    for name in packages:
        (tmp_path / f"{name}.py").touch()
    names = ("tensorrt", "tensorrt_bindings")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    import_runtime("tensorrt")
    # Taken out by hand: what monkeypatch deletes it puts back.
    assert [name for name in names if sys.modules.pop(name, None) is not None] == [imported]
