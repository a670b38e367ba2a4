"""A user's code on the first validation samples, before anything is compiled."""

from __future__ import annotations

import hashlib

import pytest

from engine_build.datasets.text import TextEncoder
from engine_build.errors import InputRefused
from engine_build.steps.processing import PROCESSING, run
from engine_build.steps.step import BuildState
from tests.fixtures.tiny_embedder.archive import CLASSIFIER, HERE, TOKENS
from tests.unit.engine_build.quantization import graphs
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
        state.networks["float"] = graphs.network(
            HERE / "classifier.onnx",
            TOKENS,
            CLASSIFIER.served.outputs,
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


NUMBERS = {"name": "n", "datatype": "INT32", "dims": [1]}
DIVIDES = "def preprocess(x):\n    return 1 // (x['n'][0, 0] - 7)\n"
DIGITS = "def preprocess(x):\n    return {'text': x['n'].astype(str).astype(object)[:, :1]}\n"


@pytest.mark.parametrize(
    ("source", "inputs", "words"),
    [
        # A fault of made-up values is a line of the log.
        (DIVIDES.replace(" - 7", ""), [NUMBERS], "preprocess() of made-up values: "),
        (DIGITS, [NUMBERS | {"dims": [2], "example": [7, 8]}], "preprocess(): n INT32 -> text"),
    ],
    ids=["made-up values", "example"],
)
def test_code_is_run_on_its_example_or_on_made_up_values(source, inputs, words, tmp_path):
    root = tmp_path / "root"
    log = log_of(root, tmp_path, preprocessing=section(root, "preprocess", source, inputs=inputs))
    assert words in log and ("made-up" in log) == ("made-up" in words)


@pytest.mark.parametrize(
    ("source", "sentence", "fields"),
    [
        ("def preprocess(x):\n    return {}\n", r"preprocess\(\) returned nothing", {}),
        ("def preprocess(x):\n    return x['n']\n", "no answer to the first 4 samples", {}),
        ("def preprocess(x):\n    while True: pass\n", r"more than 0.2 s and was stopped", {}),
        ("1 // 0\ndef preprocess(x):\n    return x\n", "be imported: ZeroDivisionError", {}),
        (
            DIVIDES,
            "gives no answer to the example of its inputs",
            {"inputs": [NUMBERS | {"example": 7}]},
        ),
    ],
)
def test_refuses_code_that_cannot_answer(source, sentence, fields, tmp_path):
    root = tmp_path / "root"
    code = section(root, "preprocess", source, timeout_ms=200, **fields)
    with pytest.raises(InputRefused, match=sentence):
        log_of(root, tmp_path, preprocessing=code)
