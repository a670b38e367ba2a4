"""The source model and its export."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import onnx
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from engine_build.datasets.dataset import Shape
from engine_build.datasets.text import TextEncoder
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.export import comparison_feeds, export, largest_difference
from engine_build.sources.source_model import SourceModel, refuse_long_sequences
from onboarding.manifest import TensorRecord
from tests.unit.engine_build.tiny import WIDTH, sample_texts


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


@pytest.mark.parametrize(("batch", "sequence"), [(1, 3), (5, 16), (4, 9)])
def test_network_takes_every_batch_and_sequence(source, network, encoder, batch, sequence):
    feed = encoder.shaped(sample_texts(30, seed=4), Shape(batch=batch, sequence=sequence))
    assert feed["input_ids"].shape == (batch, sequence)
    assert np.abs(OrtNetwork(network.path).rows(feed) - source.rows(feed)).max() < 1e-5


def test_network_has_the_agreed_names_and_opset(network):
    assert network.input_names == ("input_ids", "attention_mask", "token_type_ids")
    vectors = TensorRecord(name="sentence_embedding", datatype="FP32", shape=(-1, WIDTH))
    assert network.outputs == (vectors,)
    assert onnx.load(network.path).opset_import[0].version == 17


@pytest.mark.parametrize("opset", [11, 20])
def test_network_has_the_opset_of_the_call(opset, source, tmp_path):
    texts = sample_texts(30, seed=3)
    network = export(source, texts, tmp_path, longest=16, opset=opset)
    assert onnx.load(network.path).opset_import[0].version == opset == network.facts["opset"]


def change_weight(folder, name, change):
    weights = load_file(folder / "model.safetensors")
    weights[name] = change(weights[name]).clone()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_network_without_token_types_when_the_model_has_none(copied, tmp_path):
    config = json.loads((copied / "config.json").read_text()) | {"type_vocab_size": 1}
    change_weight(copied, "embeddings.token_type_embeddings.weight", lambda weight: weight[:1])
    (copied / "config.json").write_text(json.dumps(config))
    network = export(
        SourceModel(copied, longest=16), sample_texts(20, seed=3), tmp_path, longest=16
    )
    assert network.input_names == ("input_ids", "attention_mask")


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


def test_model_that_counts_no_positions_takes_every_length():
    encoder = torch.nn.Identity()
    encoder.config = SimpleNamespace(max_position_embeddings=-1)
    refuse_long_sequences(encoder, 100_000)
    encoder.config = SimpleNamespace(max_position_embeddings=64)
    with pytest.raises(SourceFault, match="at most 64 tokens, but a profile goes up to 65"):
        refuse_long_sequences(encoder, 65)


@pytest.mark.parametrize("is_pickled", [False, True])
def test_refuses_weights_that_are_cut_short_or_pickled(is_pickled, copied):
    weights = copied / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    if is_pickled:
        weights.unlink()
        torch.save({}, copied / "pytorch_model.bin")
    with pytest.raises(SourceFault, match="the checkpoint cannot be loaded"):
        SourceModel(copied, longest=16)


def test_refuses_weights_that_are_nan(copied):
    name = "encoder.layer.1.output.dense.weight"
    change_weight(copied, name, lambda weight: weight.fill_(torch.nan))
    with pytest.raises(SourceFault, match=f"weight {name} of the source holds NaN"):
        SourceModel(copied, longest=16)


def test_refuses_a_tokenizer_of_another_model(copied, tmp_path):
    text = (copied / "tokenizer.json").read_text()
    (copied / "tokenizer.json").write_text(text.replace('"today":', '"today": 4000, "was":'))
    words = r"the tokenizer gives token 4000 \('today'\), but the model knows 37"
    with pytest.raises(SourceFault, match=words):
        export(SourceModel(copied, longest=16), ["a cat today", "a dog"], tmp_path, longest=16)
