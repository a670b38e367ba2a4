"""Which runtimes a machine has, why it lacks the rest, and a comparison in those it has.

The network is two multiplications, and a module does the same.
"""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
import torch

from engine_build.datasets.dataset import Shape
from engine_build.errors import InputRefused, SourceFault
from engine_build.evaluation.__main__ import main
from engine_build.evaluation.comparison import (
    compare,
    comparison_data,
    format_comparison,
    network_inputs,
    random_feed,
    text_inputs,
)
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
from onboarding.manifest import TensorRecord
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
    feed = random_feed(network_inputs(network), Shape(batch=5))
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


def test_comparison_holds_a_control_and_the_memory_of_each(network):
    subjects = runnable(Artifacts(networks={"fp32": network}, source=Source()), CPU_MACHINE)
    inputs = network_inputs(network)
    comparison = compare(subjects, inputs, [Shape(batch=2)], seconds=0.05)
    data = comparison_data(comparison)
    names = [(record["runtime"], record["precision"]) for record in data["latencies"]]
    assert names == [
        ("onnxruntime", "fp32"),
        ("pytorch", "fp32"),
        ("onnxruntime", "fp32 (duplicate control)"),
    ]
    held = [footprint["runtime"] for footprint in data["held"]]
    assert held == ["onnxruntime"], "the source was loaded before"
    ratios = data["times_as_fast_as_the_first"]
    assert [(ratio["runtime"], ratio["precision"]) for ratio in ratios] == names[1:]
    assert all(ratio["low"] <= ratio["ratio"] <= ratio["high"] for ratio in ratios)
    text = format_comparison(comparison)
    assert "requests/s" in text and "load s" in text


def test_footprint_counts_what_loading_added_to_the_gpu(network):
    used = iter((100.0, 164.0))
    _, footprint = load_measured(
        lambda: load_engine("onnxruntime", network),
        {"x": np.ones((1, 8), np.float32)},
        device_mib=lambda: next(used),
    )
    assert footprint.device_memory_mib == 64.0 and footprint.load_seconds >= 0


def run(*arguments, runtimes=CPU_MACHINE):
    """The command's exit code, and all that it prints."""
    output = io.StringIO()
    return main(list(map(str, arguments)), output, output, runtimes=runtimes), output.getvalue()


def test_command_prints_a_table_and_writes_json(network, tmp_path):
    path = tmp_path / "comparison.json"
    options = ("--shapes", "1,4", "--seconds", "0.05", "--json", path)
    code, output = run("--network", network, *options)
    assert code == 0 and "not on this machine: tensorrt (no NVIDIA GPU)" in output
    data = json.loads(path.read_text())
    assert {record["batch"] for record in data["latencies"]} == {1, 4}
    assert data["gpu"] is None and data["machine"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--shapes", "1"], "nothing says what to feed"),
        (["--plan", "x.plan"], "nothing says what to feed"),
        (["--network", "missing.onnx"], "missing.onnx is no ONNX file"),
        (["--network", "a.onnx", "--network", "b.onnx"], "two of a.onnx, b.onnx have one name"),
        (["--network", "a.onnx", "--shapes", "8by64"], "shape '8by64' is no BATCHxSEQUENCE"),
    ],
)
def test_refuses_what_cannot_be_run(arguments, reason, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, output = run(*arguments)
    assert code == 1 and reason in output and "Traceback" not in output


def test_refuses_a_machine_that_runs_nothing_of_it(network):
    nothing = dict.fromkeys(ORDER, "no package")
    code, output = run("--network", network, "--shapes", "1", runtimes=nothing)
    assert code == 1 and "no runtime of this machine runs what was given" in output


def test_refuses_a_provider_that_this_onnxruntime_lacks(network):
    with pytest.raises(SourceFault, match="CUDAExecutionProvider"):
        BoundNetwork(network, device="cuda")


def test_random_feed_has_values_that_a_model_takes():
    pixels = (TensorRecord(name="pixels", datatype="FP32", shape=(-1, 3, 8, 8)),)
    images = [random_feed(pixels, Shape(batch=2))["pixels"] for _ in range(2)]
    assert images[0].shape == (2, 3, 8, 8) and (images[0] == images[1]).all()
    inputs = text_inputs(("input_ids", "attention_mask", "token_type_ids"))
    texts = random_feed(inputs, Shape(batch=2, sequence=6))
    kinds = {(values.shape, values.dtype) for values in texts.values()}
    assert kinds == {((2, 6), np.dtype(np.int64))}
    assert texts["attention_mask"].all() and not texts["token_type_ids"].any()
    assert 0 <= texts["input_ids"].max() < 100


def test_refuses_a_shape_without_the_sequence_that_an_input_has():
    reason = "input input_ids has a sequence axis; give shapes as BATCHxSEQUENCE"
    with pytest.raises(InputRefused, match=reason):
        random_feed(text_inputs(("input_ids",)), Shape(batch=2))


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
