"""Whole builds of image classifiers on a CPU, processes stood in for."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from engine_build.errors import InputRefused, SourceFault
from engine_build.sources.export import export_image_network
from engine_build.sources.image_model import ImageModel
from engine_build.store import sha256_of
from onboarding.checkpoint import checkpoint_sha256
from tests.unit.engine_build.pictures import (
    CLASSES,
    PROCESSOR,
    picture_files,
    write_image_checkpoint,
    write_pictures,
)
from tests.unit.engine_build.test_pipeline import build_entry
from tests.unit.engine_build.tiny import model, write_tree

DATASETS = {"validation": (120, 2), "calibration": (48, 1)}


def image_tree(tmp_path, architecture="ViT", *, precision="fp32", accuracy=None, **changes):
    root = tmp_path / "root"
    checkpoint = write_image_checkpoint(root / "checkpoints/tiny", architecture, **changes)
    for name, (count, seed) in DATASETS.items():
        write_pictures(root / f"models/data/{name}-images", picture_files(count, seed=seed))
    engine = {"precision": precision, "optimization_profiles": [{"batch": [1, 2, 4]}]}
    if precision == "auto":
        dataset = "models/data/calibration-images"
        engine["calibration"] = {"dataset": dataset, "samples": 48, "method": "max"}
    evaluated = {"dataset": "models/data/validation-images", "metric": "agreement"}
    spec = model(
        task="image-classification",
        source={"checkpoint": "checkpoints/tiny", "sha256": checkpoint_sha256(checkpoint)},
        engine=engine,
        accuracy=evaluated | {"budget": {"mean": 0.8}} | (accuracy or {}),
    )
    return write_tree(root, spec)


def test_image_classifier_is_built_against_the_pipeline(tmp_path):
    root = image_tree(tmp_path, "ResNet", precision="auto")
    manifest = build_entry(root, tmp_path).manifest
    assert (manifest.task, manifest.labels, manifest.activation) == (
        "image-classification",
        CLASSES,
        "softmax",
    )
    assert [(item.name, item.datatype) for item in manifest.inputs] == [("image", "BYTES")]
    assert [item.name for item in manifest.outputs] == ["logits", "labels", "scores"]
    processor = manifest.image_processor
    assert processor is not None and processor.resize == (32, 32)
    assert processor.input.shape == (-1, 3, 32, 32) and manifest.tokenizer_file is None
    assert "tiny/1/images.py" in manifest.files
    assert {(record.metric, record.verdict) for record in manifest.accuracy} == {
        ("agreement", "pass")
    }


def test_engine_is_evaluated_by_its_logits(tmp_path):
    budget = {"mean": 0.999, "worst": 0.999}
    root = image_tree(tmp_path, accuracy={"metric": "relative_error", "budget": budget})
    manifest = build_entry(root, tmp_path).manifest
    assert [record.verdict for record in manifest.accuracy] == ["pass"]


def network_tree(tmp_path, **processor):
    root = image_tree(tmp_path)
    folder = root / "networks"
    folder.mkdir()
    checkpoint = root / "checkpoints/tiny"
    export_image_network(ImageModel(checkpoint), picture_files(20), folder)
    shutil.copy(checkpoint / "config.json", folder)
    (folder / "preprocessor_config.json").write_text(json.dumps(PROCESSOR | processor))
    file = root / "models/tiny.yaml"
    spec = yaml.safe_load(file.read_text())
    network = folder / "model.onnx"
    spec["source"] = {"onnx": "networks/model.onnx", "sha256": sha256_of(network)}
    file.write_text(yaml.safe_dump(spec))
    return root


def test_onnx_file_is_served_with_the_processor_beside_it(tmp_path):
    manifest = build_entry(network_tree(tmp_path), tmp_path).manifest
    assert manifest.labels == CLASSES and manifest.activation == "softmax"
    assert manifest.image_processor is not None
    assert manifest.image_processor.input.name == "pixel_values"


def test_refuses_a_processor_of_another_size_beside_an_onnx_file(tmp_path):
    root = network_tree(tmp_path, size={"height": 30, "width": 32})
    with pytest.raises(SourceFault, match=r"takes \[3, 32, 32\] a row, .* makes \[3, 30, 32\]"):
        build_entry(root, tmp_path)


def test_refuses_an_image_of_the_dataset_that_cannot_be_read(tmp_path):
    root = image_tree(tmp_path)
    path = next((root / "models/data/validation-images").glob("*.jpg"))
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputRefused, match=f"{path.name} of accuracy dataset"):
        build_entry(root, tmp_path)


def test_refuses_a_processor_of_another_size_than_the_model(tmp_path):
    processor = json.loads(json.dumps(PROCESSOR)) | {"size": {"height": 40, "width": 40}}
    root = image_tree(tmp_path, processor=processor)
    with pytest.raises(SourceFault, match="fails on images of 40 x 40 pixels"):
        build_entry(root, tmp_path)
