"""Baselines built on this CPU: programs of PyTorch, and ONNX networks for a GPU's providers."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import replace

import numpy as np
import onnx
import pytest
import yaml

from engine_build.build import build
from engine_build.errors import InputRefused
from engine_build.exported import ExportedProgram
from engine_build.ort import OrtNetwork
from engine_build.pipeline import step_names
from engine_build.store import FolderStore
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_tree

GPU = {"instance_type": "ml.g5.xlarge"}


def baseline(runtime, precision="fp32", **changes):
    serving = {"server": "python", "runtime": runtime}
    return model("tiny", precision, serving=serving, **changes)


def build_baseline(folder, tiny_build, wheel, spec):
    """The context of a build on a machine without trtexec, and its archive, unpacked.

    Its store has the networks of the fixture's build.
    """
    shutil.copytree(tiny_build.store / "networks", folder / "store/networks")
    store = FolderStore(folder / "store")
    root = write_tree(folder / "root", spec)
    if spec["endpoint"] == GPU:
        path = root / "environments/desk.yaml"
        environment = yaml.safe_load(path.read_text()) | {"platform": "triton-26.05"}
        path.write_text(yaml.safe_dump(environment))
    tools = context(root, folder / "out", store=store, runner=StandInRunner(wheel))
    with tools.work:
        entry = build(tools).entry
        packed = store.path(entry.archive.path)
    with tarfile.open(packed) as tar:
        tar.extractall(folder / "archive", filter="data")
    return tools, entry.manifest, folder / "archive"


@pytest.fixture(scope="module")
def program(tiny_build, wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    return build_baseline(folder, tiny_build, wheel, baseline("pytorch-compile"))


def test_program_stands_in_the_place_of_a_plan(program):
    tools, manifest, archive = program
    # The network is known; the program is exported of the source all the same.
    assert tools.runner.ran("pip") == 1
    assert (manifest.runtime.name, manifest.runtime.version) == ("pytorch-compile", "2.13.0")
    assert (manifest.engine_file, manifest.precision) == ("tiny/1/model.pt2", "fp32")
    files = {path.relative_to(archive).as_posix() for path in archive.rglob("*") if path.is_file()}
    own = {f"tiny/1/{name}" for name in ("model.pt2", "plan.json", "tokenizer.json")}
    assert files == {"manifest.json", *own}


def test_program_has_accuracy_and_latencies_in_its_manifest(program):
    _, manifest, _ = program
    record = manifest.accuracy[-1]
    assert (record.subject, record.verdict, record.samples) == ("fp32 engine", "pass", 120)
    assert record.mean > 0.99999
    timed = {(item.runtime, item.precision) for item in manifest.benchmark}
    assert {("pytorch", "fp32"), ("onnxruntime", "fp32")} <= timed


def test_program_answers_as_its_network_does(program):
    tools, manifest, archive = program
    network = tools.networks().find("float", manifest.network_keys["float"])
    ids = np.array([[2, 5, 6, 3], [2, 9, 3, 0], [2, 7, 8, 3]])
    feed = {
        "input_ids": ids,
        "attention_mask": (ids > 0).astype(np.int64),
        "token_type_ids": np.zeros_like(ids),
    }
    answers = ExportedProgram(archive / manifest.engine_file).rows(feed)
    np.testing.assert_allclose(answers, OrtNetwork(network.path).rows(feed), atol=1e-4)


@pytest.mark.parametrize(
    ("runtime", "precision", "element"),
    [("onnxruntime-cuda", "fp32", 1), ("onnxruntime-tensorrt", "fp16", 10)],
)
def test_network_for_a_gpus_provider_is_built_on_a_cpu(
    tiny_build, wheel, tmp_path, runtime, precision, element
):
    spec = baseline(runtime, precision, endpoint=GPU)
    tools, manifest, archive = build_baseline(tmp_path, tiny_build, wheel, spec)
    assert not tools.request.is_cpu
    assert (manifest.runtime.name, manifest.runtime.version) == (runtime, "1.31.1")
    assert (manifest.compute_capability, manifest.gpu, manifest.plan) == ("8.6", None, None)
    assert manifest.engine_file == "tiny/1/model.onnx"
    assert manifest.accuracy[-1].verdict == "pass"
    network = onnx.load(archive / manifest.engine_file)
    weights = {item.data_type for item in network.graph.initializer if len(item.dims) == 2}
    assert weights - {onnx.TensorProto.INT64} == {element}


def test_steps_of_a_program_have_no_check_and_no_second_network(wheel, tmp_path):
    root = write_tree(tmp_path / "root", baseline("pytorch"))
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel))
    names = step_names(tools)
    assert not {"check", "quantize", "half precision", "calibrate"} & set(names)
    assert "compile" in names


def test_refuses_a_machine_with_another_torch(wheel, tmp_path):
    root = write_tree(tmp_path / "root", baseline("pytorch"))
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel))
    other = tools.request.runtime.model_copy(update={"version": "2.14.0"})
    tools = replace(tools, request=replace(tools.request, runtime=other))
    with tools.work, pytest.raises(InputRefused, match=r"has pytorch 2\.13\.0, but platform"):
        build(tools)
