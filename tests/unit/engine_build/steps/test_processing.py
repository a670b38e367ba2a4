"""A user's code on the first validation samples, before anything is compiled."""

from __future__ import annotations

import hashlib

import pytest

from engine_build.datasets.text import TextEncoder
from engine_build.errors import InputRefused
from engine_build.onnx_graph.network_store import Network
from engine_build.steps.processing import PROCESSING, run
from engine_build.steps.step import BuildState
from tests.fixtures.tiny_embedder.archive import CLASSIFIER, HERE, TOKENS
from tests.unit.engine_build.stand_ins import StandInRunner, context
from tests.unit.engine_build.tiny import model, write_tree

CLEAN = """
import numpy as np

def preprocess(inputs):
    ({name}, *_) = inputs.values()
    return {{"text": np.array([[text[0].decode().upper()] for text in {name}], object)}}
"""
LABEL = """
def postprocess(outputs):
    assert set(outputs) == {"logits", "labels", "scores"}, outputs
    return {"label": outputs["labels"][:, :1]}
"""
OUTPUT = [{"name": "label", "datatype": "BYTES", "dims": [1]}]


def section(root, function, source, **fields):
    """Write a file of code, and return its section of `serving`."""
    root.mkdir(exist_ok=True)
    file = f"models/code/{function}.py"
    (root / "models/code").mkdir(parents=True, exist_ok=True)
    (root / file).write_text(source)
    return {"file": file, "sha256": hashlib.sha256(source.encode()).hexdigest(), **fields}


def log_of(root, tmp_path, **serving):
    accuracy = {"dataset": "models/data/validation.txt", "metric": "agreement"}
    spec = model("tiny", "fp32", task="text-classification", accuracy=accuracy, serving=serving)
    tools = context(
        write_tree(root, spec), tmp_path / "out", store=None, runner=StandInRunner(None)
    )
    assert PROCESSING.applies(tools)
    tools.log.keep(tmp_path / "log")
    with tools.work:
        state = BuildState(tools)
        state.networks["float"] = Network(
            precision="float",
            path=HERE / "classifier.onnx",
            inputs=TOKENS,
            outputs=CLASSIFIER.served.outputs,
            facts={"activation": "softmax"},
            tokenizer=HERE / "tokenizer.json",
            labels=CLASSIFIER.labels,
        )
        names = [record.name for record in TOKENS]
        state.encoder = TextEncoder(HERE / "tokenizer.json", inputs=names, longest=16)
        run(tools, state)
    return (tmp_path / "log").read_text()


def test_both_are_run_one_behind_the_other(tmp_path):
    root = tmp_path / "root"
    html = [{"name": "html", "datatype": "BYTES", "dims": [1]}]
    log = log_of(
        root,
        tmp_path,
        preprocessing=section(root, "preprocess", CLEAN.format(name="html"), inputs=html),
        postprocessing=section(root, "postprocess", LABEL, outputs=OUTPUT),
    )
    assert "preprocess(): html BYTES -> text BYTES" in log
    assert "postprocess(): logits FP32, labels BYTES, scores FP32 -> label BYTES" in log


def test_fault_of_made_up_values_is_a_line_of_the_log(tmp_path):
    root, source = tmp_path / "root", "def preprocess(inputs):\n    return 1 // inputs['n'][0, 0]\n"
    numbers = [{"name": "n", "datatype": "INT32", "dims": [1]}]
    log = log_of(root, tmp_path, preprocessing=section(root, "preprocess", source, inputs=numbers))
    assert "preprocess() of made-up values: " in log


DIGITS = "def preprocess(x):\n    return {'text': x['n'].astype(str).astype(object)[:, :1]}\n"


def test_example_is_run_in_place_of_made_up_values(tmp_path):
    root = tmp_path / "root"
    numbers = [{"name": "n", "datatype": "INT32", "dims": [2], "example": [7, 8]}]
    section_of_digits = section(root, "preprocess", DIGITS, inputs=numbers)
    log = log_of(root, tmp_path, preprocessing=section_of_digits)
    assert "preprocess(): n INT32 -> text BYTES" in log and "made-up" not in log


def test_refuses_code_that_cannot_answer_its_example(tmp_path):
    root, source = tmp_path / "root", "def preprocess(x):\n    return 1 // (x['n'][0, 0] - 7)\n"
    numbers = [{"name": "n", "datatype": "INT32", "dims": [1], "example": 7}]
    with pytest.raises(InputRefused, match="gives no answer to the example of its inputs"):
        log_of(root, tmp_path, preprocessing=section(root, "preprocess", source, inputs=numbers))


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def preprocess(x):\n    return {}\n", r"preprocess\(\) returned nothing"),
        ("def preprocess(x):\n    return x['n']\n", "gives no answer to the first 4 samples"),
        ("def preprocess(x):\n    while True: pass\n", r"took more than 0.2 s and was stopped"),
        ("1 // 0\ndef preprocess(x):\n    return x\n", "cannot be imported: ZeroDivisionError"),
    ],
)
def test_refuses_code_that_cannot_answer_its_own_samples(source, sentence, tmp_path):
    root = tmp_path / "root"
    code = section(root, "preprocess", source, timeout_ms=200)
    with pytest.raises(InputRefused, match=sentence):
        log_of(root, tmp_path, preprocessing=code)
