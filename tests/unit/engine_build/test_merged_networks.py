"""The example that docs/serving.md offers instead of an ensemble: two networks merged into one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from engine_build.ort import OrtNetwork
from tests.fixtures.tiny_embedder.archive import HERE, REPOSITORY, SIZE
from tests.unit.engine_build.graphs import node, tensor, write_graph
from tests.unit.engine_build.sources.test_given_network import text_network

MERGE = REPOSITORY / "docs" / "examples" / "several_models" / "merge.py"
IDS = np.array([[3, 4, 5, 6]])
FEED = {"input_ids": IDS, "attention_mask": np.ones_like(IDS), "token_type_ids": IDS * 0}


def merge(tmp_path, opset):
    """Merge the tiny embedder and a head of three scores, of which it returns both."""
    weight = np.random.default_rng(1).standard_normal((SIZE, 3)).astype(np.float32)
    head = write_graph(
        tmp_path / "head.onnx",
        [node("MatMul", "x weight", "scores"), node("Tanh", "scores", "y")],
        [tensor("x", "batch", SIZE)],
        [tensor("y", "batch", 3)],
        opset=opset,
        weight=weight,
    )
    out = tmp_path / "merged" / "model.onnx"
    out.parent.mkdir()
    files = (HERE / "model.onnx", head, out)
    subprocess.run((sys.executable, MERGE, *files, "sentence_embedding", "x"), check=True)
    return head, out


@pytest.mark.parametrize("opset", [18, 21])
def test_merged_network_answers_as_the_two_one_after_the_other(opset, tmp_path):
    head, out = merge(tmp_path, opset)
    embedder = OrtNetwork(HERE / "model.onnx")
    vectors = embedder.values(["sentence_embedding"], FEED)["sentence_embedding"]
    expected = OrtNetwork(head).values(["y"], {"x": vectors})["y"]
    answer = OrtNetwork(out).values(["y"], FEED)["y"]
    assert np.abs(expected).max() > 0.01 and np.allclose(answer, expected, atol=1e-6)


def test_merged_network_is_a_source_of_a_text_task(tmp_path):
    _, out = merge(tmp_path, 18)
    shutil.copy(HERE / "tokenizer.json", out.parent)
    labels = {"id2label": {0: "calm", 1: "glad", 2: "sad"}}
    out.with_name("config.json").write_text(json.dumps(labels))
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    network = text_network(out.parent, out, task="text-classification", accuracy=accuracy)
    assert network.labels == ("calm", "glad", "sad")
