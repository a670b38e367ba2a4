"""Whole builds of rankers and token classifiers on a CPU, processes stood in for."""

from __future__ import annotations

import json

import pytest

from engine_build.errors import InputRefused
from tests.unit.engine_build.architectures import write_pair_template, write_text_checkpoint
from tests.unit.engine_build.test_pipeline import build_entry
from tests.unit.engine_build.tiny import model, sample_texts, write_tree, write_wheel

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
    (tmp_path / "wheels").mkdir()
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
    (tmp_path / "wheels").mkdir()
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
