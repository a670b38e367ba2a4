"""Whole builds of every task on a CPU, processes stood in for.

Classifiers, and vision networks given as ONNX files.
"""

from __future__ import annotations

import tarfile

import pytest

from engine_build.build import build
from engine_build.ort import OrtNetwork
from tests.unit.engine_build.architectures import (
    CLASSES,
    images,
    write_text_checkpoint,
    write_vision_network,
)
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, sample_texts, write_tree, write_wheel
from tests.unit.engine_build.trees import labelled, write_tensors_tree


def build_entry(root, tmp_path, wheel=None):
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel))
    with tools.work:
        return build(tools).entry


@pytest.mark.parametrize(("metric", "precision"), [("agreement", "auto"), ("accuracy", "fp32")])
def test_classifier_is_built_with_its_classes_and_evaluated_by_its_metric(
    metric, precision, tmp_path
):
    (tmp_path / "wheels").mkdir()
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", "BERT", classes=CLASSES)
    dataset = tmp_path / "root/models/data/validation.tsv"
    dataset.parent.mkdir(parents=True)
    dataset.write_text(labelled(sample_texts(120, seed=2), [*CLASSES] * 40))
    name = "models/data/validation." + ("txt" if metric == "agreement" else "tsv")
    accuracy = {"dataset": name, "metric": metric, "budget": {"mean": 0.8}}
    spec = model("tiny", precision, task="text-classification", accuracy=accuracy)
    wheel = write_wheel(checkpoint, tmp_path / "wheels")
    manifest = build_entry(write_tree(tmp_path / "root", spec), tmp_path, wheel).manifest
    assert (manifest.task, manifest.labels) == ("text-classification", CLASSES)
    assert {(record.metric, record.verdict) for record in manifest.accuracy} == {(metric, "pass")}


def vision_tree(tmp_path, name, **settings):
    network = write_vision_network(tmp_path / "given.onnx", name)
    rows = {"calibration": images(48, seed=0), "validation": images(120, seed=1)}
    datasets = {dataset: {"image": values} for dataset, values in rows.items()}
    return write_tensors_tree(tmp_path / "root", network, datasets, **settings)


def test_vision_network_is_built_and_its_int8_engine_evaluated(tmp_path):
    root = vision_tree(tmp_path, "ViT", precision="auto", metric="agreement", mean=0.8)
    entry = build_entry(root, tmp_path)
    manifest = entry.manifest
    assert {item.subject for item in manifest.accuracy} == {"fp32 engine", "int8 engine"}
    assert [(item.name, item.shape) for item in manifest.inputs] == [("image", (-1, 3, 16, 16))]
    assert [(item.name, item.shape) for item in manifest.outputs] == [("scores", (-1, 3))]
    assert {check.network for check in manifest.compile_checks} == {"float"}
    with tarfile.open(tmp_path / "out" / entry.archive.path) as tar:
        tar.extractall(tmp_path / "archive", filter="data")
    served = OrtNetwork(next((tmp_path / "archive").rglob("*.onnx")))
    feed, source = {"image": images(20, seed=5)}, OrtNetwork(tmp_path / "given.onnx")
    assert (served.rows(feed).argmax(1) == source.rows(feed).argmax(1)).mean() > 0.7
