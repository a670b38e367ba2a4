"""Bad input through the real command, in this process.

The exit code, one sentence, no traceback, nothing published.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import yaml
from onnx import TensorProto

from engine_build.__main__ import main
from engine_build.store import sha256_of
from tests.unit.engine_build.graphs import linear, node, tensor, write_graph
from tests.unit.engine_build.tiny import (
    SPECIAL,
    WORDS,
    model,
    sentences,
    word_tokenizer,
    write_tree,
)
from tests.unit.engine_build.trees import write_tensors_tree

RANDOM = np.random.default_rng(0)
ROWS = RANDOM.standard_normal((120, 4)).astype(np.float32)
OTHERS = RANDOM.standard_normal((60, 4)).astype(np.float32)
GPU = "ml.g5.xlarge"
VOCABULARY = len(SPECIAL) + len(WORDS)


def failed(root, *more):
    """How the command ends: its code and last sentence."""
    stdout, stderr = io.StringIO(), io.StringIO()
    arguments = [
        "--root",
        root,
        "--environment",
        "desk",
        "--model",
        "tiny",
        "--out",
        root / "out",
        "--publish",
        root / "store",
        *more,
    ]
    code = main(
        [str(each) for each in arguments], {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.05"}, stdout, stderr
    )
    said = stderr.getvalue().strip().splitlines()
    assert said[-1].startswith("FAILED: ") and "Traceback" not in stderr.getvalue()
    assert "unforeseen" not in said[-1] and not list((root / "store").glob("engines/**/*"))
    return code, said[-1]


def tensors_tree(
    tmp_path: Path, network: Path, rows: Any = ROWS, calibration: Any = None, **settings: Any
) -> Path:
    """A tree of one ONNX file with input x."""
    taught = {} if calibration is None else {"calibration": {"x": calibration}}
    if calibration is not None:
        settings = {"precision": "auto", **settings}
    return write_tensors_tree(
        tmp_path / "root", network, {"validation": {"x": rows}, **taught}, **settings
    )


def relu(path: Path, *shape: Any, **settings: Any) -> Path:
    return write_graph(
        path, [node("Relu", "x", "y")], [tensor("x", *shape)], [tensor("y", *shape)], **settings
    )


def nan_weight(tmp_path):
    weight = np.ones((4, 3), dtype=np.float32)
    weight[1, 1] = np.nan
    return tensors_tree(tmp_path, linear(tmp_path / "model.onnx", weight=weight))


def nan_answer(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    return tensors_tree(
        tmp_path,
        write_graph(tmp_path / "model.onnx", [node("Log", "x", "y")], *values),
        -np.abs(ROWS),
    )


def late_nan_answer(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    rows = np.abs(ROWS)
    rows[77] = -1
    return tensors_tree(
        tmp_path, write_graph(tmp_path / "model.onnx", [node("Log", "x", "y")], *values), rows
    )


def external_data(tmp_path):
    inner = onnx.load(linear(tmp_path / "inner.onnx"))
    path = tmp_path / "model.onnx"
    onnx.save(inner, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return tensors_tree(tmp_path, path)


def truncated(tmp_path):
    path = linear(tmp_path / "model.onnx")
    path.write_bytes(path.read_bytes()[:-60])
    return tensors_tree(tmp_path, path)


def over_two_gigabytes(tmp_path):
    root = tensors_tree(tmp_path, linear(tmp_path / "model.onnx"))
    with (root / "networks/model.onnx").open("r+b") as file:
        file.truncate(2**31)
    return root


def changed_file(tmp_path):
    root = tensors_tree(tmp_path, linear(tmp_path / "model.onnx"))
    linear(root / "networks/model.onnx", weight=np.ones((4, 3), dtype=np.float32))
    return root


def no_batch_axis(tmp_path):
    values = [tensor("x", "batch", 4)], [tensor("y")]
    return tensors_tree(
        tmp_path,
        write_graph(tmp_path / "model.onnx", [node("ReduceSum", "x", "y", keepdims=0)], *values),
    )


def dynamic_height(tmp_path):
    return tensors_tree(tmp_path, relu(tmp_path / "model.onnx", "batch", "height"))


def foreign_operator(tmp_path):
    fancy = [node("Fancy", "x", "y", name="/block/Fancy", domain="com.example")]
    values = [tensor("x", "batch", 4)], [tensor("y", "batch", 4)]
    return tensors_tree(
        tmp_path, write_graph(tmp_path / "model.onnx", fancy, *values, domains=["com.example"])
    )


def old_opset(tmp_path):
    root = tensors_tree(tmp_path, relu(tmp_path / "model.onnx", "batch", 4, opset=8))
    return on_gpu(root)


def new_opset(tmp_path):
    return on_gpu(tensors_tree(tmp_path, relu(tmp_path / "model.onnx", "batch", 4, opset=25)))


def old_opset_for_int8(tmp_path):
    return tensors_tree(tmp_path, linear(tmp_path / "model.onnx", opset=12), calibration=OTHERS)


def on_gpu(root):
    """The tree's model on an A10G, whose platform has TensorRT 10.16."""
    path = root / "models/tiny.yaml"
    spec = yaml.safe_load(path.read_text()) | {"endpoint": {"instance_type": GPU}}
    path.write_text(yaml.safe_dump(spec))
    environment = root / "environments/desk.yaml"
    environment.write_text(environment.read_text().replace("triton-24.10-cpu", "triton-26.05"))
    return root


def empty_calibration(tmp_path):
    return write_tree(tmp_path / "root", model("tiny", "int8"), calibration=["", " "])


def short_calibration(tmp_path):
    root = tensors_tree(tmp_path, linear(tmp_path / "model.onnx"), calibration=OTHERS)
    np.savez(root / "models/data/calibration.npz", x=OTHERS[:20])
    return root


def one_class_calibration(tmp_path):
    alike = np.tile(np.eye(4, dtype=np.float32)[0], (60, 1)) * RANDOM.uniform(1, 2, (60, 1))
    path = linear(tmp_path / "model.onnx", weight=np.eye(4, 3, dtype=np.float32))
    return tensors_tree(tmp_path, path, calibration=alike, metric="agreement")


def calibration_of_another_shape(tmp_path):
    return tensors_tree(
        tmp_path, linear(tmp_path / "model.onnx"), calibration=np.zeros((60, 5), dtype=np.float32)
    )


def calibration_that_judges(tmp_path):
    return tensors_tree(tmp_path, linear(tmp_path / "model.onnx"), calibration=ROWS[30:90])


def text_tree(tmp_path, *, rows=VOCABULARY, texts=None):
    """A text embedder as an ONNX file: the mean of a table's rows."""
    table = RANDOM.standard_normal((rows, 3)).astype(np.float32)
    ids = [
        tensor(name, "batch", "sequence", kind=TensorProto.INT64)
        for name in ("input_ids", "attention_mask")
    ]
    nodes = [
        node("Gather", "table input_ids", "hidden"),
        node("ReduceMean", "hidden", "y", axes=[1], keepdims=0),
    ]
    folder = tmp_path / "root"
    folder.mkdir()
    path = write_graph(folder / "model.onnx", nodes, ids, [tensor("y", "batch", 3)], table=table)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    source = {"onnx": "model.onnx", "sha256": sha256_of(path)}
    return write_tree(folder, model("tiny", "fp32", source=source), validation=texts)


def other_vocabulary(tmp_path):
    return text_tree(tmp_path, rows=10, texts=["a a", "the a", "red the"])


def long_texts(tmp_path):
    return text_tree(tmp_path, texts=[" ".join([text] * 5) for text in sentences(120, seed=8)])


def unknown_labels(tmp_path):
    root = tensors_tree(tmp_path, linear(tmp_path / "model.onnx"), metric="accuracy")
    np.savez(root / "models/data/validation.npz", x=ROWS, labels=np.full(len(ROWS), 7))
    return root


def no_labels(tmp_path):
    return tensors_tree(tmp_path, linear(tmp_path / "model.onnx"), metric="accuracy")


FAULTS = {
    nan_weight: (5, "weight w holds NaN or Inf"),
    nan_answer: (5, "it must give one finite row for each"),
    late_nan_answer: (5, "gives NaN or Inf for 1 of 120 validation samples"),
    external_data: (
        5,
        "in other files (weights.bin), which its digest does not pin; save it as one file",
    ),
    truncated: (5, "it may be damaged or cut short: export it again"),
    over_two_gigabytes: (5, "has 2.15 GB, and an ONNX file has 2.15 at most"),
    changed_file: (5, "but the model file pins"),
    no_batch_axis: (5, "output 'y' has no batch axis"),
    dynamic_height: (5, "input 'x' is dynamic in axis 1 (height)"),
    foreign_operator: (4, "node /block/Fancy (operator Fancy; from module block"),
    old_opset_for_int8: (4, "has opset 12, and INT8 needs 13 or newer"),
    empty_calibration: (1, "is empty"),
    short_calibration: (1, "at most 20"),
    one_class_calibration: (
        1,
        "has samples of one class only (0, by the source model's own answers)",
    ),
    calibration_of_another_shape: (
        1,
        "a sample of input 'x' has shape [5], but the network takes [4] a row",
    ),
    calibration_that_judges: (
        1,
        "60 samples of dataset models/data/validation.npz are in calibration dataset",
    ),
    other_vocabulary: (5, "on which the network fails"),
    long_texts: (
        1,
        "of the 120 samples of accuracy dataset models/data/validation.txt are longer than the 16 "
        "tokens",
    ),
    unknown_labels: (
        1,
        "has 1 labels that are no class of the model, such as '7'; allowed: 0 to 2",
    ),
    no_labels: (1, "accuracy needs labels"),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_refuses_bad_input_with_its_code_and_one_sentence(fault, tmp_path):
    code, words = FAULTS[fault]
    ended, said = failed(fault(tmp_path))
    assert (ended, words in said) == (code, True), said


@pytest.mark.parametrize(("fault", "opset"), [(old_opset, 8), (new_opset, 25)])
def test_refuses_an_opset_that_the_platforms_tensorrt_does_not_read(fault, opset, tmp_path):
    ended, said = failed(fault(tmp_path), "--networks-only")
    assert ended == 4
    assert (
        f"has opset {opset}, and TensorRT 10.16.1.11 of platform triton-26.05 reads 9 to 24; "
        "export it with opset 17" in said
    )


def test_sound_input_of_the_same_kind_is_built(tmp_path):
    root = tensors_tree(tmp_path, linear(tmp_path / "model.onnx"))
    stderr = io.StringIO()
    arguments = ["--root", root, "--environment", "desk", "--model", "tiny", "--out", root / "out"]
    assert (
        main(
            [str(each) for each in arguments],
            {"ROUNDHOUSE_BENCHMARK_SECONDS": "0.05"},
            io.StringIO(),
            stderr,
        )
        == 0
    )
