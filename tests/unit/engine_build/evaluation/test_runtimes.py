"""What a machine has, and why it lacks the rest.

Runtimes side by side on a network of two multiplications, and a module that does the same.
"""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import onnx
import pytest
import torch

from engine_build.datasets.dataset import Shape
from engine_build.errors import SourceFault
from engine_build.evaluation.__main__ import main
from engine_build.evaluation.comparison import (
    Input,
    compare,
    comparison_data,
    format_comparison,
    network_inputs,
    random_feed,
    text_inputs,
)
from engine_build.evaluation.footprint import load_measured
from engine_build.evaluation.runtimes import (
    Artifacts,
    Probes,
    Runtime,
    TorchModule,
    has_runtime,
    import_runtime,
    load_engine,
    machine_probes,
    machine_runtimes,
    missing_runtimes,
    runnable,
)
from engine_build.ort import BoundNetwork


def probes(*, modules=("torch", "onnxruntime"), gpu=False, providers=(), cuda=False):
    return Probes(
        has_module=lambda name: name in modules,
        has_gpu=lambda: gpu,
        providers=lambda: providers,
        torch_has_cuda=lambda: cuda,
    )


def test_machine_without_a_gpu_lacks_what_needs_one():
    found = machine_runtimes(probes())
    assert [each.name for each in found if each.lacks is None] == ["onnxruntime", "pytorch"]
    assert missing_runtimes(found) == (
        "not on this machine: onnxruntime CUDA (no NVIDIA GPU), pytorch CUDA (no NVIDIA GPU), "
        "tensorrt (no NVIDIA GPU)"
    )


def test_machine_with_everything_lacks_nothing():
    modules = ("torch", "onnxruntime", "tensorrt")
    found = machine_runtimes(
        probes(modules=modules, gpu=True, providers=("CUDAExecutionProvider",), cuda=True)
    )
    assert missing_runtimes(found) is None and has_runtime(found, "tensorrt")


def test_gpu_machine_says_what_its_software_lacks():
    found = {each.name: each.lacks for each in machine_runtimes(probes(gpu=True))}
    assert found["onnxruntime CUDA"] == "its build has no CUDAExecutionProvider"
    assert (found["pytorch CUDA"], found["tensorrt"]) == (
        "torch sees no GPU",
        "no package tensorrt",
    )


def test_missing_packages_are_named_and_never_imported():
    found = {each.name: each.lacks for each in machine_runtimes(probes(modules=(), gpu=True))}
    assert found["onnxruntime"] == found["onnxruntime CUDA"] == "no package onnxruntime"
    assert found["pytorch"] == found["pytorch CUDA"] == "no package torch"


def test_this_machine_has_onnxruntime():
    assert has_runtime(machine_runtimes(machine_probes()), "onnxruntime")


NAMES = ("onnxruntime", "onnxruntime CUDA", "pytorch", "pytorch CUDA", "tensorrt")
EVERYTHING = tuple(Runtime(name=name, lacks=None) for name in NAMES)
ON_CPU = tuple(
    Runtime(name=name, lacks=None if name in ("onnxruntime", "pytorch") else "no NVIDIA GPU")
    for name in NAMES
)
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
    helper, float32 = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Add", ["a", "a"], ["b"]),
    ]
    graph = helper.make_graph(
        nodes,
        "two",
        [helper.make_tensor_value_info("x", float32, ["batch", 8])],
        [helper.make_tensor_value_info(name, float32, ["batch", 3]) for name in "ab"],
        [onnx.numpy_helper.from_array(WEIGHT, "w")],
    )
    path = tmp_path_factory.mktemp("network") / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    return path


def test_every_runtime_gives_the_same_rows(network):
    feed = random_feed(network_inputs(network), Shape(batch=5))
    expected = np.concatenate([feed["x"] @ WEIGHT, 2 * (feed["x"] @ WEIGHT)], axis=1)
    found = [load_engine("onnxruntime", network), BoundNetwork(network, device="cpu"), Source()]
    for each in found:
        assert each.rows(feed) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    half = TorchModule(Source.module, ("x",), device="cpu", half=True).rows(feed)
    assert half.dtype == np.float32 and half == pytest.approx(expected, abs=0.02)
    assert next(Source.module.parameters()).dtype == torch.float32, (
        "the source itself stays as it was"
    )


def test_contenders_are_what_the_machine_has_the_gpus_first(network, tmp_path):
    offer = Artifacts(
        networks={"fp32": network}, plans={"fp16": tmp_path / "fp16.plan"}, source=Source()
    )
    assert [(each.runtime, each.precision) for each in runnable(offer, EVERYTHING)] == [
        ("tensorrt", "fp16"),
        ("onnxruntime CUDA", "fp32"),
        ("pytorch CUDA", "fp32"),
        ("pytorch CUDA", "fp16"),
        ("onnxruntime", "fp32"),
        ("pytorch", "fp32"),
    ]
    assert [each.runtime for each in runnable(offer, ON_CPU)] == ["onnxruntime", "pytorch"]


def test_comparison_holds_a_control_and_the_memory_of_each(network):
    offer = Artifacts(networks={"fp32": network}, source=Source())
    found = compare(
        runnable(offer, ON_CPU), network_inputs(network), [Shape(batch=2)], seconds=0.05
    )
    data = comparison_data(found)
    named = [(each["runtime"], each["precision"]) for each in data["latencies"]]
    assert named == [
        ("onnxruntime", "fp32"),
        ("pytorch", "fp32"),
        ("onnxruntime", "fp32 (duplicate control)"),
    ]
    assert [each["runtime"] for each in data["held"]] == ["onnxruntime"], (
        "the source was loaded before"
    )
    assert [each["precision"] for each in data["times_as_fast_as_the_first"]] == [
        "fp32",
        "fp32 (duplicate control)",
    ]
    assert all(
        each["low"] <= each["ratio"] <= each["high"] for each in data["times_as_fast_as_the_first"]
    )
    assert "requests/s" in format_comparison(found) and "load s" in format_comparison(found)


def test_holding_counts_what_loading_added_to_the_gpu(network):
    used = iter((100.0, 164.0))
    _, footprint = load_measured(
        lambda: load_engine("onnxruntime", network),
        {"x": np.ones((1, 8), np.float32)},
        device_mib=lambda: next(used),
    )
    assert footprint.device_memory_mib == 64.0 and footprint.load_seconds >= 0


def test_command_prints_a_table_and_writes_json(network, tmp_path):
    stdout, stderr = io.StringIO(), io.StringIO()
    arguments = [
        "--network",
        str(network),
        "--shapes",
        "1,4",
        "--seconds",
        "0.05",
        "--json",
        str(tmp_path / "found.json"),
    ]
    assert main(arguments, stdout, stderr, runtimes=ON_CPU) == 0
    assert "not on this machine: onnxruntime CUDA (no NVIDIA GPU)" in stdout.getvalue()
    found = json.loads((tmp_path / "found.json").read_text())
    assert {each["batch"] for each in found["latencies"]} == {1, 4}
    assert found["gpu"] is None and found["machine"]


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
    stderr = io.StringIO()
    assert main(arguments, io.StringIO(), stderr, runtimes=ON_CPU) == 1
    assert reason in stderr.getvalue() and "Traceback" not in stderr.getvalue()


def test_refuses_a_machine_that_runs_nothing_of_it(network):
    stderr = io.StringIO()
    nothing = tuple(Runtime(name=name, lacks="no package") for name in NAMES)
    assert (
        main(["--network", str(network), "--shapes", "1"], io.StringIO(), stderr, runtimes=nothing)
        == 1
    )
    assert "no runtime of this machine runs what was given" in stderr.getvalue()


def test_refuses_a_provider_that_this_onnxruntime_lacks(network):
    with pytest.raises(SourceFault, match="CUDAExecutionProvider"):
        BoundNetwork(network, device="cuda")


def test_random_feed_has_values_that_a_model_takes():
    images = (Input(name="pixels", type=np.dtype(np.float32), shape=(-1, 3, 8, 8)),)
    assert random_feed(images, Shape(batch=2))["pixels"].shape == (2, 3, 8, 8)
    texts = random_feed(
        text_inputs(("input_ids", "attention_mask", "token_type_ids")), Shape(batch=2, sequence=6)
    )
    assert {array.shape for array in texts.values()} == {(2, 6)} and {
        array.dtype for array in texts.values()
    } == {np.dtype(np.int64)}
    assert (
        texts["attention_mask"].all()
        and not texts["token_type_ids"].any()
        and 0 <= texts["input_ids"].max() < 100
    )
    assert (
        random_feed(images, Shape(batch=2))["pixels"]
        == random_feed(images, Shape(batch=2))["pixels"]
    ).all()


def test_refuses_a_shape_without_the_sequence_that_an_input_has():
    with pytest.raises(
        Exception, match="input input_ids has a sequence axis; give shapes as BATCHxSEQUENCE"
    ):
        random_feed(text_inputs(("input_ids",)), Shape(batch=2))


@pytest.mark.parametrize(
    ("there", "taken"), [(("bindings",), "bindings"), (("whole", "bindings"), "whole")]
)
def test_tensorrt_is_imported_before_a_clock_runs_under_one_of_its_names(
    tmp_path, monkeypatch, there, taken
):
    names = {"whole": "tensorrt", "bindings": "tensorrt_bindings"}
    for each in there:
        (tmp_path / f"{names[each]}.py").touch()
    for name in names.values():
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    import_runtime("tensorrt")
    # Taken out by hand: what monkeypatch deletes it puts back.
    assert [each for each, name in names.items() if sys.modules.pop(name, None) is not None] == [
        taken
    ]
