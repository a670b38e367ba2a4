"""Builds of the tasks beside embedding: classifiers, rankers, token classifiers, images."""

from __future__ import annotations

import json
import shutil

import pytest
import yaml

from engine_build.build import build
from engine_build.errors import InputRefused, SourceFault
from engine_build.sources.export import export
from engine_build.sources.source_model import ImageModel
from engine_build.store import sha256_of
from onboarding.checkpoint import checkpoint_sha256
from tests.unit.engine_build.architectures import (
    CLASSES,
    write_pair_template,
    write_text_checkpoint,
)
from tests.unit.engine_build.pictures import CLASSES as PICTURE_CLASSES
from tests.unit.engine_build.pictures import (
    PROCESSOR,
    picture_files,
    write_image_checkpoint,
    write_pictures,
)
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import labelled, model, sample_texts, write_tree, write_wheel


def build_entry(root, tmp_path, wheel=None):
    tools = context(root, tmp_path / "out", store=None, runner=StandInRunner(wheel))
    with tools.work:
        return build(tools).entry


@pytest.mark.parametrize(("metric", "precision"), [("agreement", "auto"), ("accuracy", "fp32")])
def test_classifier_is_built_with_its_classes_and_evaluated_by_its_metric(
    metric, precision, tmp_path
):
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


ENTITIES = ("O", "B-PER", "I-PER")
PAIRS = ("models/data/pairs.tsv", "models/data/calibration-pairs.tsv")


def write_pairs(root, name, *, queries, seed):
    """120 texts, in turn with one of the queries."""
    lines = (
        f"{queries[place % len(queries)]}\t{text}\t{place % 2}"
        for place, text in enumerate(sample_texts(120, seed=seed))
    )
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines))


def ranker_tree(tmp_path, queries):
    checkpoint = write_text_checkpoint(tmp_path / "checkpoint", "BERT", classes=("relevant",))
    write_pair_template(checkpoint)
    configuration = checkpoint / "tokenizer_config.json"
    names = {"model_input_names": ["input_ids", "token_type_ids", "attention_mask"]}
    configuration.write_text(json.dumps(json.loads(configuration.read_text()) | names))
    root = tmp_path / "root"
    write_pairs(root, PAIRS[0], queries=queries, seed=5)
    write_pairs(root, PAIRS[1], queries=sample_texts(9, seed=6), seed=7)
    spec = model(
        "tiny",
        "auto",
        task="text-ranking",
        accuracy={"dataset": PAIRS[0], "metric": "order", "budget": {"mean": 0.8}},
    )
    spec["engine"]["calibration"]["dataset"] = PAIRS[1]
    spec["engine"]["optimization_profiles"] = [{"batch": [1, 2, 4], "sequence": [4, 16, 40]}]
    return write_tree(root, spec), write_wheel(checkpoint, tmp_path / "wheels")


def test_ranker_is_built_against_predict_and_evaluated_by_its_order(tmp_path):
    root, wheel = ranker_tree(tmp_path, sample_texts(12, seed=8))
    manifest = build_entry(root, tmp_path, wheel).manifest
    assert (manifest.task, manifest.labels, manifest.activation) == (
        "text-ranking",
        None,
        "sigmoid",
    )
    assert [record.name for record in manifest.inputs] == ["query", "text"]
    assert [(record.name, record.shape) for record in manifest.outputs] == [("scores", (-1, 1))]
    assert {(record.metric, record.verdict) for record in manifest.accuracy} == {("order", "pass")}


def test_refuses_to_judge_the_order_of_lone_texts(tmp_path):
    root, wheel = ranker_tree(tmp_path, sample_texts(120, seed=8))
    with pytest.raises(InputRefused, match="has no query with two texts"):
        build_entry(root, tmp_path, wheel)


def test_token_classifier_is_built_and_evaluated_by_its_tokens(tmp_path):
    checkpoint = write_text_checkpoint(
        tmp_path / "checkpoint", "BERT", classes=ENTITIES, head="ForTokenClassification"
    )
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    spec = model("tiny", "auto", task="token-classification", accuracy=accuracy)
    spec["accuracy"]["budget"] = {"mean": 0.8}
    wheel = write_wheel(checkpoint, tmp_path / "wheels")
    manifest = build_entry(write_tree(tmp_path / "root", spec), tmp_path, wheel).manifest
    assert (manifest.labels, manifest.activation) == (ENTITIES, "softmax")
    names = [(record.name, record.datatype) for record in manifest.outputs]
    assert names == [("labels", "BYTES"), ("scores", "FP32"), ("offsets", "INT64")]
    assert {record.verdict for record in manifest.accuracy} == {"pass"}
    # Shares of tokens, and not of texts.
    assert any(0 < record.worst < 1 for record in manifest.accuracy)


DATASETS = {"validation": (120, 2), "calibration": (48, 1)}


def image_tree(tmp_path, architecture="ViT", *, precision="fp32", **changes):
    root = tmp_path / "root"
    checkpoint = write_image_checkpoint(root / "checkpoints/tiny", architecture, **changes)
    for name, (count, seed) in DATASETS.items():
        write_pictures(root / f"models/data/{name}-images", picture_files(count, seed=seed))
    engine = {"precision": precision, "optimization_profiles": [{"batch": [1, 2, 4]}]}
    if precision == "auto":
        dataset = "models/data/calibration-images"
        engine["calibration"] = {"dataset": dataset, "samples": 48, "method": "max"}
    evaluated = {"dataset": "models/data/validation-images", "metric": "agreement"}
    evaluated["budget"] = {"mean": 0.8}
    spec = model(
        task="image-classification",
        source={"checkpoint": "checkpoints/tiny", "sha256": checkpoint_sha256(checkpoint)},
        engine=engine,
        accuracy=evaluated,
    )
    return write_tree(root, spec)


def test_image_classifier_is_built_against_the_pipeline(tmp_path):
    root = image_tree(tmp_path, "ResNet", precision="auto")
    manifest = build_entry(root, tmp_path).manifest
    assert (manifest.task, manifest.labels, manifest.activation) == (
        "image-classification",
        PICTURE_CLASSES,
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


def network_tree(tmp_path, **processor):
    root = image_tree(tmp_path)
    folder = root / "networks"
    folder.mkdir()
    checkpoint = root / "checkpoints/tiny"
    export(ImageModel(checkpoint), picture_files(20), folder)
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
    assert manifest.labels == PICTURE_CLASSES and manifest.activation == "softmax"
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
