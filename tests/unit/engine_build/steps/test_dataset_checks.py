"""Samples against the network that they are for."""

from __future__ import annotations

import io

import numpy as np
import pytest

from engine_build.errors import InputRefused
from engine_build.log import Log
from engine_build.onnx_graph.network_store import Network, class_indices
from engine_build.options import Options
from engine_build.request import build_request
from engine_build.sources.given_network import encoder_for
from engine_build.steps.dataset_checks import check_calibration_classes, check_samples
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.graphs import linear
from tests.unit.engine_build.tiny import model, sentences, word_tokenizer, write_tree
from tests.unit.engine_build.trees import labelled, write_tensors_tree

CLASSES = ("calm", "glad")
RANDOM = np.random.default_rng(0)


def resolved(root):
    return build_request(
        Options(root=root, environment="desk", model="tiny", out=root / "out"), Log(io.StringIO())
    )


def record(name, *shape):
    return TensorRecord(name=name, datatype="FP32", shape=shape)


def text_network(tmp_path, labels=None):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    ids = tuple(
        TensorRecord(name=name, datatype="INT64", shape=(-1, -1))
        for name in ("input_ids", "attention_mask")
    )
    return Network(
        precision="float",
        path=tmp_path / "model.onnx",
        inputs=ids,
        outputs=(record("logits", -1, 2),),
        facts={},
        tokenizer=tmp_path / "tokenizer.json",
        labels=labels,
    )


def check_networks(wanted, network, log=None):
    check_samples(
        wanted,
        network,
        encoder_for(network, wanted.longest_sequence),
        Log(io.StringIO() if log is None else log),
    )


def classifier_tree(root, *, calibration, validation=None, metric="agreement"):
    """A classifier whose datasets are .tsv where they have labels."""
    spec = model("tiny", "auto", task="text-classification")
    spec["accuracy"] = {
        "dataset": "models/data/validation.txt",
        "metric": metric,
        "budget": {"mean": 0.9},
    }
    root.mkdir(exist_ok=True)
    (root / "models/data").mkdir(parents=True)
    if validation is not None:
        (root / "models/data/validation.tsv").write_text(
            labelled(sentences(120, seed=2), validation)
        )
        spec["accuracy"]["dataset"] = "models/data/validation.tsv"
    (root / "models/data/calibration.tsv").write_text(labelled(sentences(60, seed=1), calibration))
    spec["engine"]["calibration"]["dataset"] = "models/data/calibration.tsv"
    return write_tree(root, spec)


def test_few_long_texts_are_cut_and_told(tmp_path):
    texts = [*sentences(110, seed=2), *(" ".join([text] * 4) for text in sentences(10, seed=7))]
    log = io.StringIO()
    check_networks(
        resolved(write_tree(tmp_path / "root", validation=texts)), text_network(tmp_path), log
    )
    assert (
        "10 of 120 samples of accuracy dataset models/data/validation.txt are cut at 16 tokens"
        in log.getvalue()
    )


@pytest.mark.parametrize("use", ["calibration", "validation"])
def test_refuses_texts_that_are_mostly_longer_than_the_engine_takes(use, tmp_path):
    texts = [" ".join([text] * 4) for text in sentences(120, seed=7)]
    wanted = resolved(write_tree(tmp_path / "root", **{use: texts}))
    words = (
        rf"of the \d+ samples of \w+ dataset models/data/{use}.txt are longer than the 16 tokens "
        r"of the longest sequence; raise"
    )
    with pytest.raises(InputRefused, match=words):
        check_networks(wanted, text_network(tmp_path))


def tensors(tmp_path, rows, **settings):
    root = write_tensors_tree(
        tmp_path / "root", linear(tmp_path / "model.onnx"), {"validation": rows}, **settings
    )
    shape = (-1, -1) if "profile" in settings else (-1, 4)
    network = Network(
        precision="float",
        path=tmp_path / "model.onnx",
        inputs=(record("x", *shape),),
        outputs=(record("y", -1, 3),),
        facts={},
    )
    return resolved(root), network


def test_arrays_of_the_networks_shape_are_taken(tmp_path):
    check_networks(*tensors(tmp_path, {"x": np.zeros((5, 4))}))


def test_refuses_arrays_of_another_shape(tmp_path):
    with pytest.raises(
        InputRefused,
        match=r"a sample of input 'x' has shape \[7\], but the network takes \[4\] a row",
    ):
        check_networks(*tensors(tmp_path, {"x": np.zeros((5, 7))}))


def test_refuses_arrays_without_an_input(tmp_path):
    with pytest.raises(
        InputRefused, match=r"has no array for input 'x' of the network; it has: other; add it"
    ):
        check_networks(*tensors(tmp_path, {"other": np.zeros((5, 4))}))


def test_refuses_arrays_outside_the_profile(tmp_path):
    words = (
        r"5 of the 5 samples of accuracy dataset .* have 9 values on the sequence axis, outside "
        r".*; allowed: 4 to 8"
    )
    with pytest.raises(InputRefused, match=words):
        check_networks(
            *tensors(
                tmp_path,
                {"x": np.zeros((5, 9))},
                profile={"batch": [1, 2, 4], "sequence": [4, 6, 8]},
            )
        )


@pytest.mark.parametrize("labels", [["calm", "glad"] * 60, ["0", "1"] * 60])
def test_labels_are_names_or_numbers_of_classes(labels, tmp_path):
    wanted = resolved(
        classifier_tree(
            tmp_path / "root",
            calibration=["calm", "glad"] * 30,
            validation=labels,
            metric="accuracy",
        )
    )
    network = text_network(tmp_path, CLASSES)
    check_networks(wanted, network)
    assert list(class_indices(wanted.validation.labels, network, "data")[:3]) == [0, 1, 0]


def test_refuses_labels_that_are_no_class(tmp_path):
    validation = ["calm", "wild"] * 60
    root = classifier_tree(
        tmp_path / "root",
        calibration=["calm", "glad"] * 30,
        validation=validation,
        metric="accuracy",
    )
    with pytest.raises(
        InputRefused,
        match=r"has 1 labels that are no class of the model, such as 'wild'; allowed: calm, glad",
    ):
        check_networks(resolved(root), text_network(tmp_path, CLASSES))


def test_refuses_class_metrics_of_a_network_without_classes(tmp_path):
    wanted, network = tensors(tmp_path, {"x": np.zeros((5, 4))}, metric="agreement")
    many = Network(
        precision="float",
        path=network.path,
        inputs=network.inputs,
        outputs=(record("y", -1, 3, 8),),
        facts={},
    )
    with pytest.raises(
        InputRefused,
        match=r"gives y \[-1, 3, 8\], which are no scores of classes \[batch, classes\]",
    ):
        check_networks(wanted, many)


def calibration_checked(wanted, network):
    check_calibration_classes(wanted, network, encoder_for(network, wanted.longest_sequence))


def test_calibration_of_several_classes_is_taken(tmp_path):
    wanted = resolved(classifier_tree(tmp_path / "root", calibration=["calm", "glad"] * 30))
    calibration_checked(wanted, text_network(tmp_path, CLASSES))


def test_refuses_calibration_labels_of_one_class(tmp_path):
    wanted = resolved(classifier_tree(tmp_path / "root", calibration=["calm"] * 60))
    with pytest.raises(
        InputRefused,
        match=r"has samples of one class only \(calm, by labels\); INT8 ranges would be of that "
        r"class",
    ):
        calibration_checked(wanted, text_network(tmp_path, CLASSES))


def images(tmp_path, calibration):
    datasets = {
        "calibration": {"x": calibration},
        "validation": {"x": RANDOM.standard_normal((5, 4))},
    }
    path = linear(tmp_path / "model.onnx", weight=np.eye(4, 3, dtype=np.float32))
    root = write_tensors_tree(
        tmp_path / "root", path, datasets, precision="auto", metric="agreement"
    )
    network = Network(
        precision="float",
        path=path,
        inputs=(record("x", -1, 4),),
        outputs=(record("y", -1, 3),),
        facts={},
    )
    return resolved(root), network


def test_calibration_without_labels_is_told_by_the_models_answers(tmp_path):
    calibration_checked(*images(tmp_path, np.eye(20, 4)))


def test_refuses_calibration_that_the_model_answers_with_one_class(tmp_path):
    alike = np.tile(np.eye(4)[1], (20, 1)) * RANDOM.uniform(1, 2, (20, 1))
    with pytest.raises(
        InputRefused, match=r"of one class only \(1, by the source model's own answers\)"
    ):
        calibration_checked(*images(tmp_path, alike))
