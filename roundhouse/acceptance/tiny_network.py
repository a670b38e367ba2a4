"""Writes the tiny random text network of an acceptance run, and answers texts with it on a CPU.

The builder's environment runs it, with a folder for its argument. `write`: network and tokenizer;
its output's last line is {"sha256": ...}. `answer`: standard input is a JSON list of texts, the
output's last line a list of vectors, by ONNX Runtime on the float network.

The weights come from a fixed seed, so the same code gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from roundhouse.acceptance.tiny_texts import SPECIAL, VOCABULARY

SIZE, HIDDEN, MOST_TOKENS = 64, 256, 64
SEED = 20
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def network() -> Any:
    """Return an ONNX model: word vectors, LayerNorm, two layers, mean of the words, length one."""
    from onnx import TensorProto, helper, numpy_helper

    chance = np.random.default_rng(SEED)

    def weights(*shape: int) -> Any:
        return (chance.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)

    constants = {
        "vectors": chance.standard_normal((len(VOCABULARY), SIZE)).astype(np.float32),
        "types": np.zeros((2, SIZE), np.float32),
        "scale": np.ones(SIZE, np.float32),
        "shift": np.zeros(SIZE, np.float32),
        "widen": weights(SIZE, HIDDEN),
        "narrow": weights(HIDDEN, SIZE),
        "last": np.array([2]),
        "middle": np.array([1]),
        "floor": np.array([1e-12], np.float32),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["vectors", "input_ids"], ["words"]),
        node("Gather", ["types", "token_type_ids"], ["segments"]),
        node("Add", ["words", "segments"], ["tokens"]),
        node("LayerNormalization", ["tokens", "scale", "shift"], ["normal"], axis=-1),
        node("MatMul", ["normal", "widen"], ["wide"]),
        node("Relu", ["wide"], ["active"]),
        node("MatMul", ["active", "narrow"], ["mixed"]),
        node("Add", ["mixed", "tokens"], ["residual"]),
        node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["mask", "last"], ["column"]),
        node("Mul", ["residual", "column"], ["kept"]),
        node("ReduceSum", ["kept", "middle"], ["sum"], keepdims=0),
        node("ReduceSum", ["column", "middle"], ["count"], keepdims=0),
        node("Div", ["sum", "count"], ["mean"]),
        node("ReduceL2", ["mean", "middle"], ["length"], keepdims=1),
        node("Max", ["length", "floor"], ["safe_length"]),
        node("Div", ["mean", "safe_length"], ["sentence_embedding"]),
    ]
    graph = helper.make_graph(
        nodes,
        "acceptance",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "sequence"])
            for name in INPUTS
        ],
        [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", SIZE])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def tokenizer() -> dict[str, Any]:
    """Return a word-level tokenizer in the form of tokenizer.json."""
    special = {name: {"SpecialToken": {"id": name, "type_id": 0}} for name in SPECIAL}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    return {
        "version": "1.0",
        "truncation": {
            "direction": "Right",
            "max_length": MOST_TOKENS,
            "strategy": "LongestFirst",
            "stride": 0,
        },
        "padding": None,
        "added_tokens": [],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [special["[CLS]"], text, special["[SEP]"]],
            "pair": [text, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {
                name: {"id": name, "ids": [VOCABULARY.index(name)], "tokens": [name]}
                for name in ("[CLS]", "[SEP]")
            },
        },
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": {word: index for index, word in enumerate(VOCABULARY)},
            "unk_token": "[UNK]",
        },
    }


def write(folder: Path) -> str:
    """Write network and tokenizer; return the hex digest of the network."""
    data: bytes = network().SerializeToString()
    (folder / "model.onnx").write_bytes(data)
    text = json.dumps(tokenizer(), indent=1) + "\n"
    (folder / "tokenizer.json").write_text(text, encoding="utf-8")
    return hashlib.sha256(data).hexdigest()


def vectors(folder: Path, texts: list[str]) -> list[list[float]]:
    """Return the float network's answer to each text, one at a time, so that nothing is padded."""
    import onnxruntime
    from tokenizers import Tokenizer

    session = onnxruntime.InferenceSession(
        str(folder / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    words = Tokenizer.from_file(str(folder / "tokenizer.json"))
    rows = []
    for text in texts:
        ids = np.array([words.encode(text).ids], np.int64)
        values = (ids, np.ones_like(ids), np.zeros_like(ids))
        feed = dict(zip(INPUTS, values, strict=True))
        rows.append([float(value) for value in session.run(None, feed)[0][0]])
    return rows


def main() -> int:
    """Do what the first argument says in the folder of the second."""
    verb, folder = sys.argv[1], Path(sys.argv[2])
    if verb == "write":
        print(json.dumps({"sha256": write(folder)}))
    else:
        print(json.dumps(vectors(folder, json.load(sys.stdin))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
