"""Bad networks and datasets through the real command, in this process.

The exit code, one sentence, no traceback, nothing published.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from engine_build.store import sha256_of
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.stand_ins import run_command
from tests.unit.engine_build.tiny import (
    SPECIAL,
    WORDS,
    model,
    sample_texts,
    word_tokenizer,
    write_tensors_tree,
    write_tree,
)

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((120, 4)).astype(np.float32)
OTHERS = RANDOM.standard_normal((60, 4)).astype(np.float32)
BYTES = TensorProto.UINT8
VOCABULARY = len(SPECIAL) + len(WORDS)
SEQUENCES = {"batch": [1, 2, 4], "sequence": [4, 8, 16]}


def build(root, *more):
    """Exit code, result, and last line of the log."""
    code, stdout, stderr = run_command(root, "--publish", root / "store", *more)
    return code, json.loads(stdout.getvalue()), stderr.getvalue()


def refusal(root, *more):
    """Exit code and reason, the same in JSON on stdout and in the last line of stderr."""
    code, failure, log = build(root, *more)
    assert (failure["status"], failure["exit_code"]) == ("failed", code)
    assert log.strip().splitlines()[-1].startswith(f"FAILED: {failure['reason']}")
    assert "Traceback" not in log and "unforeseen" not in failure["reason"]
    assert not list((root / "store").glob("engines/**/*"))
    return code, failure["reason"]


def tensors_tree(
    tmp_path: Path, network: Path, rows: Any = ROWS, calibration: Any = None, **settings: Any
) -> Path:
    """A tree of one ONNX file with input x."""
    datasets = {"validation": {"x": rows}}
    if calibration is not None:
        datasets["calibration"] = {"x": calibration}
        settings = {"precision": "auto", **settings}
    return write_tensors_tree(tmp_path / "root", network, datasets, **settings)


def graph(tmp_path, *nodes, x=("batch", 4), y=("batch", 4), kind=TensorProto.FLOAT, **settings):
    """A network of x and y, both [batch, 4] unless told otherwise."""
    output = tensor("y", *y) if isinstance(y, tuple) else y
    inputs = [tensor("x", *x, kind=kind)]
    return write_graph(tmp_path / "model.onnx", nodes, inputs, [output], **settings)


def network_tree(*nodes, rows=ROWS, calibration=None, spec=None, **settings):
    """What makes the tree of a network."""

    def write(tmp_path):
        network = graph(tmp_path, *nodes, **settings)
        return tensors_tree(tmp_path, network, rows, calibration, **(spec or {}))

    return write


def linear_tree(*, rows=ROWS, calibration=None, weight=None, opset=17, **spec):
    """What makes the tree of y = x W."""

    def write(tmp_path):
        network = linear(tmp_path / "model.onnx", weight=weight, opset=opset)
        return tensors_tree(tmp_path, network, rows, calibration, **spec)

    return write


RELU, LOG, CAST = node("Relu", "x", "y"), node("Log", "x", "y"), node("Cast", "x", "y", to=1)
byte_tree = partial(network_tree, CAST, kind=BYTES)


def external_data(tmp_path):
    inner = onnx.load(linear(tmp_path / "inner.onnx"))
    path = tmp_path / "model.onnx"
    onnx.save(inner, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return tensors_tree(tmp_path, path)


def changed_file(tmp_path):
    root = linear_tree()(tmp_path)
    linear(root / "networks/model.onnx", weight=np.ones((4, 3), dtype=np.float32))
    return root


def unknown_labels(tmp_path):
    root = linear_tree(metric="accuracy")(tmp_path)
    np.savez(root / "models/data/validation.npz", x=ROWS, labels=np.full(len(ROWS), 7))
    return root


def text_tree(tmp_path, *, rows=VOCABULARY, texts):
    """A text embedder as an ONNX file: the mean of a table's rows."""
    folder, kind = tmp_path / "root", TensorProto.INT64
    folder.mkdir()
    names = ("input_ids", "attention_mask")
    inputs = [tensor(name, "batch", "sequence", kind=kind) for name in names]
    mean = node("ReduceMean", "hidden", "y", axes=[1], keepdims=0)
    path = write_graph(
        folder / "model.onnx",
        [node("Gather", "table input_ids", "hidden"), mean],
        inputs,
        [tensor("y", "batch", 3)],
        table=RANDOM.standard_normal((rows, 3)).astype(np.float32),
    )
    word_tokenizer().save(str(folder / "tokenizer.json"))
    source = {"onnx": "model.onnx", "sha256": sha256_of(path)}
    return write_tree(folder, model("tiny", "fp32", source=source), validation=texts)


LONG_TEXTS = [" ".join([text] * 5) for text in sample_texts(120, seed=8)]
ONE_CLASS = np.tile(np.eye(4, dtype=np.float32)[0], (60, 1)) * RANDOM.uniform(1, 2, (60, 1))
NAN_WEIGHT = np.where(np.eye(4, 3, dtype=np.float32) > 0, np.nan, 1).astype(np.float32)
ONE_NEGATIVE = np.where(np.arange(120)[:, None] == 77, -1, np.abs(ROWS))
FANCY = node("Fancy", "x", "y", name="/block/Fancy", domain="com.example")
MEAN = node("ReduceMean", "x", "mean", axes=[0], keepdims=1)
NOISE = node("RandomNormalLike", "x", "noise")
CHANGED = "but the network takes UINT8"
FAULTS = {
    "nan weight": (5, "weight w holds NaN or Inf", linear_tree(weight=NAN_WEIGHT)),
    "nan answer": (
        5,
        "are NaN or infinite; each must be finite",
        network_tree(LOG, rows=-np.abs(ROWS)),
    ),
    "late nan answer": (
        5,
        "gives NaN or Inf for 1 of 120 validation samples",
        network_tree(LOG, rows=ONE_NEGATIVE),
    ),
    "external data": (
        5,
        "keeps weights in weights.bin, which is not beside it; put it there",
        external_data,
    ),
    "changed file": (5, "but the model file pins", changed_file),
    "dynamic height": (
        5,
        "input 'x' is dynamic in axis 1 (height)",
        network_tree(RELU, x=("batch", "height"), y=("batch", "height")),
    ),
    "foreign operator": (
        4,
        "node /block/Fancy (operator Fancy; from module block",
        network_tree(FANCY, domains=["com.example"]),
    ),
    "old opset for int8": (
        4,
        "has opset 12, and INT8 needs 13 or newer",
        linear_tree(opset=12, calibration=OTHERS, precision="int8"),
    ),
    "opset 5": (5, "; export it with opset 17.", network_tree(RELU, opset=5)),
    "opset 30": (5, "; export it with opset 17.", network_tree(RELU, opset=30)),
    "int8 without a layer": (
        5,
        "has no MatMul, Gemm, Conv or LSTM with constant weights",
        network_tree(RELU, calibration=OTHERS, spec={"precision": "int8"}),
    ),
    "constant": (
        5,
        "answers all 120 validation samples alike",
        network_tree(node("Mul", "x zero", "y"), zero=np.zeros(4, "f")),
    ),
    "no width": (
        5,
        "answers no value for any of 120 validation samples: an output has an axis of size 0",
        network_tree(
            node("MatMul", "x none", "y"), y=tensor("y", "batch", 0), none=np.zeros((4, 0), "f")
        ),
    ),
    "rows that change each other": (
        5,
        "answers a sample differently alone and in a batch of 3",
        network_tree(MEAN, node("Sub", "x mean", "y")),
    ),
    "fewer rows than samples": (
        5,
        "gives 1 rows for 3 samples; it must give one for each: export it with the batch",
        network_tree(node("ReduceMean", "x", "y", axes=[0], keepdims=1)),
    ),
    "chance": (5, "nor on chance", network_tree(NOISE, node("Add", "x noise", "y"))),
    "profile without its axis": (
        5,
        "no input is dynamic in axis 1, but the optimization profiles have a sequence",
        linear_tree(profile=SEQUENCES),
    ),
    "calibration of one class": (
        1,
        "has samples of one class only (0, by the source model's own answers)",
        linear_tree(
            weight=np.eye(4, 3, dtype=np.float32), calibration=ONE_CLASS, metric="agreement"
        ),
    ),
    "calibration that judges": (
        1,
        "60 samples of dataset models/data/validation.npz are in calibration dataset",
        linear_tree(calibration=ROWS[30:90]),
    ),
    "other vocabulary": (
        5,
        "on which the network fails",
        partial(text_tree, rows=10, texts=["a a", "the a", "red the"]),
    ),
    "long texts": (
        1,
        "of the 120 samples of accuracy dataset models/data/validation.txt are longer than the 16 "
        "tokens",
        partial(text_tree, texts=LONG_TEXTS),
    ),
    "unknown labels": (
        1,
        "has 1 labels that are no class of the model, such as '7'; allowed: 0 to 2",
        unknown_labels,
    ),
    "nan sample": (
        1,
        "'x' holds NaN, but the network takes FP32; save values",
        linear_tree(rows=np.where(np.abs(ROWS) > 2, np.nan, ROWS)),
    ),
    "too large": (
        1,
        "'x' holds float64 from 1e+300 to 1e+300, but the network takes FP32; save values",
        linear_tree(rows=np.full((120, 4), 1e300)),
    ),
    "fractions in a byte": (1, CHANGED, byte_tree(rows=ROWS)),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_refuses_bad_input_with_its_code_and_one_sentence(fault, tmp_path):
    code, words, write = FAULTS[fault]
    ended, reason = refusal(write(tmp_path))
    assert (ended, words in reason) == (code, True), reason


@pytest.mark.parametrize("opset", [8, 25])
def test_refuses_an_opset_that_the_platforms_tensorrt_does_not_read(opset, tmp_path):
    root = network_tree(RELU, opset=opset, spec={"gpu": "ml.g5.xlarge"})(tmp_path)
    code, reason = refusal(root, "--networks-only")
    words = (
        f"has opset {opset}, and TensorRT 10.16.1.11 of platform triton-26.05 reads 9 to 24; "
        "export it with opset 17"
    )
    assert (code, words in reason) == (4, True)


WHOLE_NUMBERS = RANDOM.integers(0, 256, (120, 4)).astype(np.float64)


def test_whole_floats_that_a_byte_holds_are_built(tmp_path):
    code, result, _ = build(byte_tree(rows=WHOLE_NUMBERS)(tmp_path))
    assert (code, result["precision"]) == (0, "fp32")


def test_auto_takes_float_where_no_layer_can_be_int8(tmp_path):
    code, result, log = build(network_tree(RELU, calibration=OTHERS)(tmp_path))
    assert (code, result["precision"]) == (0, "fp32")
    reason = "the network has no MatMul, Gemm, Conv or LSTM with constant weights"
    assert result["decision"].startswith(f"fp32: int8 was not tried, since {reason}")
    assert f"int8 is not tried: {reason}" in log
