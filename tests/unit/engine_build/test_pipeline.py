"""Whole builds of every task on a CPU, processes stood in for.

Classifiers, and vision networks given as ONNX files.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import onnx
import pytest

from engine_build.build import build
from engine_build.errors import BudgetMissed
from engine_build.ort import OrtNetwork
from tests.unit.engine_build.architectures import (
    CLASSES,
    VISION,
    images,
    write_text_checkpoint,
    write_vision_network,
)
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sentences, write_tree, write_wheel
from tests.unit.engine_build.trees import labelled, write_tensors_tree


def built(root, tmp_path, wheel=None):
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel))
    with tools.work:
        return build(tools).entry


def unpacked(entry, tmp_path):
    with tarfile.open(tmp_path / "out" / entry.archive.path) as tar:
        tar.extractall(tmp_path / "archive", filter="data")
    return tmp_path / "archive"


def classifier(tmp_path, *, metric="agreement", precision="auto", labels=None):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    wheel = write_wheel(
        write_text_checkpoint(tmp_path / "checkpoint", "BERT", classes=CLASSES), wheels
    )
    accuracy = {"dataset": "models/data/validation.txt", "metric": metric, "budget": {"mean": 0.8}}
    data = tmp_path / "root/models/data"
    data.mkdir(parents=True)
    if labels is not None:
        accuracy["dataset"] = "models/data/validation.tsv"
        (data / "validation.tsv").write_text(labelled(sentences(len(labels), seed=2), labels))
    root = write_tree(
        tmp_path / "root", model("tiny", precision, task="text-classification", accuracy=accuracy)
    )
    return root, wheel


def test_classifier_is_built_with_its_classes(tmp_path):
    root, wheel = classifier(tmp_path)
    manifest = built(root, tmp_path, wheel).manifest
    assert (manifest.task, manifest.labels) == ("text-classification", CLASSES)
    assert {record.metric for record in manifest.accuracy} == {"agreement"}
    assert {record.verdict for record in manifest.accuracy} == {"pass"}


def test_classifier_is_judged_by_its_labels(tmp_path):
    root, wheel = classifier(tmp_path, metric="accuracy", labels=[*CLASSES] * 40)
    manifest = built(root, tmp_path, wheel).manifest
    assert {record.metric for record in manifest.accuracy} == {"accuracy"}


@pytest.mark.parametrize("name", VISION)
def test_vision_network_is_built_in_int8(name, tmp_path):
    network = write_vision_network(tmp_path / "given.onnx", name)
    datasets = {
        "calibration": {"image": images(48, seed=0)},
        "validation": {"image": images(120, seed=1)},
    }
    root = write_tensors_tree(
        tmp_path / "root", network, datasets, precision="auto", metric="agreement", mean=0.8
    )
    entry = built(root, tmp_path)
    manifest = entry.manifest
    assert [(each.name, each.shape) for each in manifest.inputs] == [("image", (-1, 3, 16, 16))]
    assert [(each.name, each.shape) for each in manifest.outputs] == [("scores", (-1, 3))]
    assert {check.network for check in manifest.compile_checks} == {"float", "int8"}
    quantized = next(
        (tmp_path / "out" / "networks" / manifest.network_keys["int8"]).glob("*-model.onnx")
    )
    operators = [node.op_type for node in onnx.load(quantized).graph.node]
    assert operators.count("QuantizeLinear") >= 2 and ("Conv" in operators)
    served = OrtNetwork(next(Path(unpacked(entry, tmp_path)).rglob("*.onnx")))
    feed = {"image": images(20, seed=5)}
    assert (served.rows(feed).argmax(1) == OrtNetwork(network).rows(feed).argmax(1)).mean() > 0.7


def test_refuses_a_vision_engine_outside_its_budget(tmp_path):
    network = write_vision_network(tmp_path / "given.onnx", "ViT")
    datasets = {
        "calibration": {"image": images(48, seed=0)},
        "validation": {"image": images(120, seed=1)},
    }
    root = write_tensors_tree(
        tmp_path / "root", network, datasets, precision="int8", metric="relative_error", mean=1.0
    )
    with pytest.raises(BudgetMissed, match="the closest"):
        built(root, tmp_path)
