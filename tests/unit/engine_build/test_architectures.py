"""Architectures as exported, and programs of PyTorch."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch

from engine_build.build import build
from engine_build.datasets.text import TextEncoder
from engine_build.errors import InputRefused, SourceFault
from engine_build.exported import ExportedProgram
from engine_build.ort import OrtNetwork
from engine_build.sources.export import export, write_program
from engine_build.sources.source_model import SourceModel
from engine_build.store import FolderStore
from tests.unit.engine_build.architectures import CLASSES, TEXT, write_text_checkpoint
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sample_texts, write_tree

NAMES = tuple(name for name in TEXT if name != "MiniLM")
"""MiniLM is a BERT."""


def exported(source, folder):
    """A session of the exported network, its record and its encoder."""
    network = export(source, sample_texts(30, seed=3), folder, longest=16)
    encoder = TextEncoder(network.tokenizer, inputs=network.input_names, longest=16)
    return OrtNetwork(network.path), network, encoder


@pytest.mark.parametrize("name", NAMES)
def test_classifier_is_exported_with_its_classes(name, tmp_path):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", name, classes=CLASSES)
    source = SourceModel(checkpoint, longest=16, task="text-classification")
    session, network, encoder = exported(source, tmp_path)
    (logits,) = network.outputs
    assert (logits.name, logits.shape, network.labels) == ("logits", (-1, 3), CLASSES)
    feed = encoder.feed(sample_texts(40, seed=4))
    rows = session.rows(feed)
    assert np.allclose(rows, source.rows(feed), atol=1e-4)
    assert len(set(rows.argmax(axis=1))) > 1


def test_refuses_sequences_beyond_the_position_offset_of_roberta(tmp_path):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", "RoBERTa")
    with pytest.raises(SourceFault, match="takes at most 32 tokens, but a profile goes up to 33"):
        SourceModel(checkpoint, longest=33)


def test_refuses_a_checkpoint_without_a_head_for_its_task(tmp_path):
    checkpoint = write_text_checkpoint(tmp_path, "BERT")
    words = r"lacks \d+ weights that BertForSequenceClassification needs, such as classifier.bias"
    with pytest.raises(SourceFault, match=words):
        SourceModel(checkpoint, longest=16, task="text-classification")


def test_refuses_a_model_that_gives_nan(tmp_path):
    source = SourceModel(write_text_checkpoint(tmp_path / "checkpoint", "BERT"), longest=16)
    weights = source.module.encoder.encoder.layer[0].output.dense.weight
    with torch.no_grad():
        weights.fill_(3e38)
    with pytest.raises(SourceFault, match="gives NaN, Inf or another shape at 1x"):
        export(source, sample_texts(20, seed=3), tmp_path, longest=16)


FEED = {"values": np.ones((2, 3), np.float32)}


class Layer(torch.nn.Module):
    """One linear layer; builds' modules take any number of tensors."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, *tensors):
        return self.linear(tensors[0]).relu()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    module = Layer()

    def rows(feed):
        with torch.no_grad():
            return module(torch.from_numpy(feed["values"])).numpy()

    source = SimpleNamespace(inputs=("values",), output="vector", module=module, rows=rows)
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    write_program(source, [FEED], path, longest=None)
    return path


def reason(path):
    """Return why a program is refused, in loading or in running; None for one that answers."""
    try:
        ExportedProgram(path).rows(FEED)
    except SourceFault as fault:
        return str(fault)
    return None


def test_program_answers_and_a_wrong_input_is_one_sentence(program):
    assert reason(program) is None
    with pytest.raises(SourceFault, match=r"^torch 2\.[0-9.]+ cannot run the program \("):
        ExportedProgram(program).rows({"values": np.ones((2, 5), np.float32)})


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
    platform = "triton-26.05" if spec["endpoint"] == GPU else "triton-24.10-cpu"
    root = write_tree(folder / "root", spec, platform=platform)
    tools = context(root, folder / "out", store=store, runner=StandInRunner(wheel))
    with tools.work:
        entry = build(tools).entry
        packed = store.path(entry.archive.path)
    with tarfile.open(packed) as tar:
        tar.extractall(folder / "archive", filter="data")
    return tools, entry.manifest, folder / "archive"


@pytest.fixture(scope="module")
def built_baseline(tiny_build, wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    return build_baseline(folder, tiny_build, wheel, baseline("pytorch-compile"))


def test_program_stands_in_the_place_of_a_plan(built_baseline):
    tools, manifest, archive = built_baseline
    # The network is known; the program is exported of the source all the same.
    assert tools.runner.ran("pip") == 1
    assert (manifest.runtime.name, manifest.runtime.version) == ("pytorch-compile", "2.13.0")
    assert (manifest.engine_file, manifest.precision) == ("tiny/1/model.pt2", "fp32")
    files = {path.relative_to(archive).as_posix() for path in archive.rglob("*") if path.is_file()}
    own = {f"tiny/1/{name}" for name in ("model.pt2", "plan.json", "tokenizer.json")}
    assert files == {"manifest.json", *own}


def test_program_has_accuracy_and_latencies_in_its_manifest(built_baseline):
    _, manifest, _ = built_baseline
    record = manifest.accuracy[-1]
    assert (record.subject, record.verdict, record.samples) == ("fp32 engine", "pass", 120)
    assert record.mean > 0.99999
    timed = {(item.runtime, item.precision) for item in manifest.benchmark}
    assert {("pytorch", "fp32"), ("onnxruntime", "fp32")} <= timed


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


def test_refuses_a_machine_with_another_torch(wheel, tmp_path):
    root = write_tree(tmp_path / "root", baseline("pytorch"))
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel))
    other = tools.request.runtime.model_copy(update={"version": "2.14.0"})
    tools = replace(tools, request=replace(tools.request, runtime=other))
    with tools.work, pytest.raises(InputRefused, match=r"has pytorch 2\.13\.0, but platform"):
        build(tools)
