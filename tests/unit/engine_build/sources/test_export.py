"""Exports of checkpoints with their tokenizers and heads, and what is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import transformers
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file, save_file

from engine_build.datasets.text import TextEncoder, save_padded
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.checkpoint import (
    checkpoint_tokenizer,
    refuse_adapter,
    refuse_other_tokens,
)
from engine_build.sources.export import comparison_feeds, export, largest_difference
from engine_build.sources.head import Head, head_of, refuse_other_head, refuse_other_scores
from engine_build.sources.source_model import SourceModel
from tests.unit.engine_build.architectures import VOCABULARY
from tests.unit.engine_build.tiny import sample_texts, word_tokenizer


@pytest.fixture
def copied(checkpoint, tmp_path):
    return shutil.copytree(checkpoint, tmp_path / "checkpoint")


@pytest.fixture(scope="module")
def source(checkpoint):
    return SourceModel(checkpoint, longest=16)


@pytest.fixture(scope="module")
def network(source, tmp_path_factory):
    texts = sample_texts(30, seed=3)
    return export(source, texts, tmp_path_factory.mktemp("network"), longest=16)


@pytest.fixture(scope="module")
def encoder(network):
    return TextEncoder(network.tokenizer, inputs=network.input_names, longest=16)


def test_refuses_an_export_that_differs(source, network, encoder):
    feeds = comparison_feeds(encoder, sample_texts(20, seed=3), 16)

    class Shifted(OrtNetwork):
        def rows(self, feed):
            return super().rows(feed) + 0.001

    assert largest_difference(source, OrtNetwork(network.path), feeds) < 1e-5
    words = r"differs from PyTorch by 0.001 at 1x\d+, allowed 0.0001 "
    with pytest.raises(SourceFault, match=words):
        largest_difference(source, Shifted(network.path), feeds)


def test_refuses_an_export_that_cannot_be_run(source, encoder):
    class Failing:
        def rows(self, feed):
            raise RuntimeError("indices element out of data bounds")

    feeds = comparison_feeds(encoder, sample_texts(30, seed=4), 16)
    with pytest.raises(SourceFault, match=r"cannot be run at 1x\d+ \(indices .*export it to ONNX"):
        largest_difference(source, Failing(), feeds)


def test_refuses_what_cannot_be_exported_and_prints_nothing(copied, tmp_path, capfd):
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
    config = transformers.FNetConfig(vocab_size=40, pad_token_id=0, **sizes)
    transformers.FNetModel(config).save_pretrained(copied)
    source = SourceModel(copied, longest=16)
    capfd.readouterr()
    with pytest.raises(SourceFault, match=r"cannot be exported .*fft.*; export it yourself, as by"):
        export(source, sample_texts(30, seed=3), tmp_path, longest=16)
    assert capfd.readouterr().out == ""


def test_refuses_weights_that_are_nan(copied):
    name = "encoder.layer.1.output.dense.weight"
    weights = load_file(copied / "model.safetensors")
    weights[name].fill_(torch.nan)
    save_file(weights, copied / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SourceFault, match=f"weight {name} of the source holds NaN"):
        SourceModel(copied, longest=16)


@pytest.fixture
def folder(tmp_path):
    word_tokenizer().save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def change_tokenizer(folder, **changes):
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def tokenizer_of(folder, vocabulary=VOCABULARY, padding=0):
    return checkpoint_tokenizer(folder, vocabulary=vocabulary, padding=padding)


@pytest.mark.parametrize(
    ("changes", "facts", "fault"),
    [
        (
            {},
            {"vocabulary": VOCABULARY - 5},
            rf"gives token {VOCABULARY - 1} \('today'\), but the model knows {VOCABULARY - 5}",
        ),
        (
            {},
            {"padding": 1},
            r"pads with token 0 \('\[PAD\]'\), but the model's padding is 1; they are not a pair",
        ),
        (
            {"padding": None},
            {"vocabulary": 1000, "padding": 900},
            r"the model pads with token 900, which the tokenizer does not have",
        ),
    ],
)
def test_refuses_the_tokenizer_of_another_model(folder, changes, facts, fault):
    with pytest.raises(SourceFault, match=fault):
        tokenizer_of(change_tokenizer(folder, **changes), **facts)


def test_refuses_a_tokenizer_without_padding(folder, tmp_path):
    state = json.loads((folder / "tokenizer.json").read_text())
    state["model"]["vocab"]["nothing"] = state["model"]["vocab"].pop("[PAD]")
    words = r"has no padding token, which batches need; write the number of one as pad_token_id"
    with pytest.raises(SourceFault, match=words):
        folder = change_tokenizer(folder, padding=None, model=state["model"])
        save_padded(tokenizer_of(folder, padding=None), tmp_path)


def test_refuses_a_tokenizer_that_does_not_add_its_special_tokens(folder):
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}})
    )
    tokenizer_of(folder)
    words = r"names cls_token '\[CLS\]', but tokenizer.json does not add it to a text"
    with pytest.raises(SourceFault, match=words):
        tokenizer_of(change_tokenizer(folder, post_processor=None))


def test_refuses_a_tokenizer_that_is_damaged_or_not_there(folder):
    path = folder / "tokenizer.json"
    path.write_text(path.read_text()[:100])
    with pytest.raises(SourceFault, match=r"tokenizer.json cannot be read"):
        tokenizer_of(folder)
    path.unlink()
    with pytest.raises(SourceFault, match=r"has no tokenizer.json; save it with a fast tokenizer"):
        tokenizer_of(folder)


def test_refuses_a_tokenizer_that_transformers_reads_in_another_way(folder):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True}))
    change_tokenizer(folder, normalizer=None)
    with pytest.raises(SourceFault, match=r"splits 'A CAT' into \d+ tokens, .* do_lower_case"):
        refuse_other_tokens(tokenizer_of(folder), folder, ["a cat"])


def test_refuses_a_tokenizer_of_remote_code_without_asking(folder):
    custom = {"tokenizer_class": "Own", "auto_map": {"AutoTokenizer": ["own.Own", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(custom))
    (folder / "own.py").write_text("raise SystemExit('the code must not run')")
    with pytest.raises(SourceFault, match="transformers cannot load the checkpoint's tokenizer"):
        refuse_other_tokens(tokenizer_of(folder), folder, ["a cat"])


def test_refuses_an_adapter_beside_its_model(tmp_path):
    refuse_adapter(tmp_path)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps({"base_model_name_or_path": "owner/base", "peft_type": "LORA"}))
    with pytest.raises(SourceFault, match=r"an adapter of owner/base, .* merge it"):
        refuse_adapter(tmp_path)


NAMES = {"0": "calm", "1": "glad"}
ENTITIES = {"0": "O", "1": "B-PER"}


def write(folder, name="config.json", **config):
    (folder / name).write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize(
    ("task", "config", "head"),
    [
        ("text-embedding", {}, None),
        (
            "text-classification",
            {"id2label": None},
            Head(labels=("LABEL_0", "LABEL_1"), activation="softmax"),
        ),
        ("text-classification", {}, Head(labels=("calm", "glad"), activation="softmax")),
        (
            "text-classification",
            {"problem_type": "multi_label_classification"},
            Head(labels=("calm", "glad"), activation="sigmoid"),
        ),
        (
            "token-classification",
            {"id2label": ENTITIES},
            Head(labels=("O", "B-PER"), activation="softmax"),
        ),
    ],
)
def test_head_is_that_of_the_configuration(task, config, head, tmp_path):
    assert head_of(write(tmp_path, **{"id2label": NAMES} | config), task, scores=2) == head


@pytest.mark.parametrize(
    ("own", "config", "activation"),
    [
        ({}, {}, "sigmoid"),
        (
            {},
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            "identity",
        ),
        ({}, {"sbert_ce_default_activation_function": "torch.nn.Identity"}, "identity"),
        (
            {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
            {"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}},
            "sigmoid",
        ),
    ],
)
def test_activation_of_a_ranker_is_cross_encoders(own, config, activation, tmp_path):
    write(tmp_path, "config_sentence_transformers.json", **own)
    head = head_of(write(tmp_path, **config), "text-ranking", scores=1)
    assert head == Head(labels=None, activation=activation)


@pytest.mark.parametrize(
    ("task", "config", "scores", "says"),
    [
        ("text-classification", {"id2label": NAMES}, 3, "3 scores, but config.json names 2"),
        ("text-classification", {"id2label": {"0": "a", "1": "a"}}, 2, "two classes 'a'"),
        (
            "text-classification",
            {"id2label": ["calm", "glad"]},
            2,
            r'as a list.*names: \{"0": "calm", "1": "glad"\}',
        ),
        ("text-classification", {"problem_type": "ordinal"}, 2, "problem_type 'ordinal'; allowed"),
        ("text-ranking", {}, 3, "gives 3 scores for a pair"),
        (
            "text-ranking",
            {"sbert_ce_default_activation_function": "torch.nn.Tanh"},
            1,
            "torch.nn.Tanh; allowed: Identity, Sigmoid",
        ),
    ],
)
def test_refuses_a_head_that_no_answer_could_be_made_of(task, config, scores, says, tmp_path):
    with pytest.raises(SourceFault, match=says):
        head_of(write(tmp_path, **config), task, scores=scores)


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"id2label": NAMES}, "classifier.weight of the checkpoint gives 3 scores, .* names 2"),
        ({}, "gives 3 scores, but config.json names no classes, which means 2"),
        ({"id2label": NAMES, "num_labels": 3}, "num_labels 3, but id2label names 2"),
    ],
)
def test_refuses_labels_that_are_not_the_last_layers(config, says, tmp_path):
    weight = np.zeros((3, 4), np.float32)
    save_arrays({"classifier.weight": weight}, tmp_path / "model.safetensors")
    with pytest.raises(SourceFault, match=says):
        refuse_other_head(tmp_path, config, "text-classification")
    three = {"id2label": NAMES | {"2": "sad"}}
    assert refuse_other_head(tmp_path, three, "text-classification") is None


def test_refuses_a_network_that_scores_otherwise():
    reference = np.ones((2, 1), np.float32)
    assert refuse_other_scores(reference + 1e-6, reference) is None
    with pytest.raises(SourceFault, match=r"differ from those of .* predict\(\) \(by 0.5\)"):
        refuse_other_scores(reference + 0.5, reference)
