"""The export step: networks that are quantized already, and samples that do not fit theirs."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import class_indices
from engine_build.options import Options
from engine_build.request import build_request
from engine_build.sources.given_network import encoder_for
from engine_build.steps.export import (
    check_calibration_classes,
    check_samples,
)
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.quantization.graphs import network, record
from tests.unit.engine_build.tiny import model, sample_texts, word_tokenizer, write_tree
from tests.unit.engine_build.trees import labelled, write_tensors_tree
from tests.unit.onboarding.onnx_bytes import onnx_bytes

CLASSES = ("calm", "glad")
RANDOM = np.random.default_rng(0)


def request_of(root):
    options = Options(root=root, environment="desk", model="tiny", out=root / "out")
    return build_request(options, Log(io.StringIO()))


@pytest.fixture
def text_network(tmp_path):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    ids = tuple(record(n, -1, -1, datatype="INT64") for n in ("input_ids", "attention_mask"))
    tokenizer, path = tmp_path / "tokenizer.json", tmp_path / "model.onnx"
    return network(path, ids, (record("logits", -1, 2),), tokenizer=tokenizer, labels=CLASSES)


def check(request, network, log=None):
    encoder = encoder_for(network, request.longest_sequence)
    check_samples(request, network, encoder, Log(io.StringIO() if log is None else log))


def check_classes(request, network):
    encoder = encoder_for(network, request.longest_sequence)
    check_calibration_classes(request, network, encoder)


def classifier(tmp_path, calibration, validation):
    """The request of a classifier whose datasets have these labels."""
    spec, folder = model("tiny", "auto", task="text-classification"), tmp_path / "root/models/data"
    dataset = "models/data/validation.tsv"
    spec["accuracy"] = {"dataset": dataset, "metric": "accuracy", "budget": {"mean": 0.9}}
    spec["engine"]["calibration"]["dataset"] = "models/data/calibration.tsv"
    folder.mkdir(parents=True)
    (folder / "validation.tsv").write_text(labelled(sample_texts(120, seed=2), validation))
    (folder / "calibration.tsv").write_text(labelled(sample_texts(60, seed=1), calibration))
    return request_of(write_tree(tmp_path / "root", spec))


def tensors(tmp_path, rows, *, output=(-1, 3), calibration=None, **settings):
    """The request of a linear network with input x, and that network.

    The file of the tree takes whatever rows there are, as one in a bucket that `check` cannot read.
    """
    tmp_path.mkdir(exist_ok=True)
    path = linear(tmp_path / "model.onnx", weight=np.eye(4, 3, dtype=np.float32))
    any_rows = tmp_path / "any.onnx"
    inputs = {name: (1, (None, *array.shape[1:])) for name, array in rows.items()}
    any_rows.write_bytes(onnx_bytes(inputs))
    datasets = {"validation": rows}
    if calibration is not None:
        datasets["calibration"] = {"x": calibration}
    root = write_tensors_tree(tmp_path / "root", any_rows, datasets, **settings)
    shape = (-1, -1) if "profile" in settings else (-1, 4)
    return request_of(root), network(path, (record("x", *shape),), (record("y", *output),))


def test_few_long_texts_are_cut_and_logged(tmp_path, text_network):
    texts = [
        *sample_texts(110, seed=2),
        *(" ".join([text] * 4) for text in sample_texts(10, seed=7)),
    ]
    log = io.StringIO()
    check(request_of(write_tree(tmp_path / "root", validation=texts)), text_network, log)
    dataset = "accuracy dataset models/data/validation.txt"
    assert f"10 of 120 samples of {dataset} are cut at 16 tokens" in log.getvalue()


def test_refuses_calibration_texts_that_are_mostly_longer_than_the_engine_takes(
    tmp_path, text_network
):
    texts = [" ".join([text] * 4) for text in sample_texts(120, seed=7)]
    request = request_of(write_tree(tmp_path / "root", calibration=texts))
    words = (
        r"of the \d+ samples of calibration dataset models/data/calibration.txt are longer than "
        r"the 16 tokens of the longest sequence; raise"
    )
    with pytest.raises(InputRefused, match=words):
        check(request, text_network)


@pytest.mark.parametrize(
    ("rows", "settings", "words"),
    [
        (
            {"x": np.zeros((5, 7))},
            {},
            r"a sample of input 'x' has shape \[7\], but the network takes \[4\] a row",
        ),
        (
            {"other": np.zeros((5, 4))},
            {},
            r"has no array for input 'x' of the network; it has: other; add it",
        ),
        (
            {"x": np.zeros((5, 9))},
            {"profile": {"batch": [1, 2, 4], "sequence": [4, 6, 8]}},
            r"5 of the 5 samples of accuracy dataset .* have 9 values on the sequence axis, "
            r"outside .*; allowed: 4 to 8",
        ),
        (
            {"x": np.zeros((5, 4))},
            {"metric": "agreement", "output": (-1, 3, 8)},
            r"gives y \[-1, 3, 8\], which are no scores of classes \[batch, classes\]",
        ),
    ],
    ids=["shape", "name", "profile", "no classes"],
)
def test_refuses_arrays_that_do_not_fit(rows, settings, words, tmp_path):
    with pytest.raises(InputRefused, match=words):
        check(*tensors(tmp_path, rows, **settings))


@pytest.mark.parametrize("labels", [["calm", "glad"] * 60, ["0", "1"] * 60])
def test_labels_are_names_or_numbers_of_classes(labels, tmp_path, text_network):
    request = classifier(tmp_path, ["calm", "glad"] * 30, labels)
    check(request, text_network)
    check_classes(request, text_network)
    indices = class_indices(request.validation.labels, text_network, "data")
    assert list(indices[:3]) == [0, 1, 0]


def test_refuses_labels_that_are_no_class_and_calibration_labels_of_one(tmp_path, text_network):
    request = classifier(tmp_path, ["calm"] * 60, ["calm", "wild"] * 60)
    words = r"has 1 labels that are no class of the model, such as 'wild'; allowed: calm, glad"
    with pytest.raises(InputRefused, match=words):
        check(request, text_network)
    words = r"has samples of one class only \(calm, by labels\); INT8 ranges would be of that class"
    with pytest.raises(InputRefused, match=words):
        check_classes(request, text_network)


def test_calibration_without_labels_is_balanced_by_the_models_answers_or_refused(tmp_path):
    rows = {"x": RANDOM.standard_normal((5, 4))}
    settings = {"precision": "auto", "metric": "agreement"}
    request, known = tensors(tmp_path / "sound", rows, calibration=np.eye(20, 4), **settings)
    check(request, known)
    check_classes(request, known)
    alike = np.tile(np.eye(4)[1], (20, 1)) * RANDOM.uniform(1, 2, (20, 1))
    request, known = tensors(tmp_path / "alike", rows, calibration=alike, **settings)
    known = dataclasses.replace(known, labels=("calm", "glad", "sad"))
    words = r"of one class only \(glad, by the source model's own answers\)"
    with pytest.raises(InputRefused, match=words):
        check_classes(request, known)
