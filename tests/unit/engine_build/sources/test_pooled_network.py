"""A plain export gets the pooling that its model file names, in its own opset and types."""

from __future__ import annotations

import shutil
import warnings
from itertools import combinations
from typing import get_args

import numpy as np
import onnx
import pytest
import torch
import transformers
from onnx import version_converter
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import Pooling

from engine_build.datasets.text import TextEncoder
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.given_network import TOKENS, VECTOR
from engine_build.sources.pooling import POOLERS, PoolingHead
from onboarding.values import PoolingMode
from tests.unit.engine_build.embedders import pooling, write_embedder
from tests.unit.engine_build.sources.test_given_network import text_network
from tests.unit.engine_build.tiny import sample_texts

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class Tokens(torch.nn.Module):
    """A plain export's answer: the vectors of the tokens, and BERT's pooler."""

    def __init__(self, checkpoint):
        super().__init__()
        self.encoder = transformers.AutoModel.from_pretrained(
            str(checkpoint), attn_implementation="eager"
        )

    def forward(self, *tensors):
        answer = self.encoder(**dict(zip(INPUTS, tensors, strict=True)))
        return answer.last_hidden_state, answer.pooler_output


@pytest.fixture(scope="module")
def plain(checkpoint, tmp_path_factory):
    """The tiny checkpoint as transformers' users export it, its tokenizer beside it."""
    path = tmp_path_factory.mktemp("plain") / "model.onnx"
    names = (*INPUTS, TOKENS)
    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Tokens(checkpoint).eval(),
            tuple(torch.ones(2, 3, dtype=torch.int64) for _ in INPUTS),
            str(path),
            input_names=list(INPUTS),
            output_names=[TOKENS, "pooler_output"],
            dynamic_axes={name: {0: "batch", 1: "sequence"} for name in names}
            | {"pooler_output": {0: "batch"}},
            opset_version=14,
            dynamo=False,
        )
    shutil.copy(checkpoint / "tokenizer.json", path.parent)
    return path


def pooled(tmp_path, path, **settings):
    source = {"onnx": "model.onnx", "pooling": settings}
    return text_network(tmp_path, path, source=source)


@pytest.mark.parametrize(("mode", "normalize"), [("mean", True), ("lasttoken", False)])
def test_vectors_are_those_of_encode(mode, normalize, plain, checkpoint, tmp_path):
    heads = [Normalize()] if normalize else []
    folder = write_embedder(tmp_path / "saved", checkpoint, pooling(mode), *heads)
    network = pooled(tmp_path, plain, mode=mode, normalize=normalize)
    assert [(record.name, record.shape) for record in network.outputs] == [
        (f"pooling/{VECTOR}", (-1, 32))
    ]
    texts = sample_texts(40, seed=3)
    encoder = TextEncoder(network.tokenizer, inputs=network.input_names, longest=16)
    rows = OrtNetwork(network.path).rows(encoder.feed(texts))
    encoded = SentenceTransformer(str(folder), device="cpu").encode(texts)
    assert np.abs(rows - encoded).max() < 1e-4


@pytest.mark.parametrize("opset", [18, 21])
def test_network_keeps_its_opset(opset, plain, tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(version_converter.convert_version(onnx.load(plain), opset), path)
    shutil.copy(plain.with_name("tokenizer.json"), tmp_path)
    network = pooled(tmp_path, path, mode="mean", normalize=True)
    assert network.facts["opset"] == opset
    onnx.checker.check_model(str(network.path), full_check=True)


def test_vector_among_several_outputs_is_the_answer(plain, tmp_path):
    model = onnx.load(plain)
    path = tmp_path / "model.onnx"
    for node in model.graph.node:
        node.output[:] = [VECTOR if name == "pooler_output" else name for name in node.output]
    model.graph.output[1].name = VECTOR
    onnx.save(model, path)
    shutil.copy(plain.with_name("tokenizer.json"), tmp_path)
    network = text_network(tmp_path, path, source={"onnx": "model.onnx"})
    assert [record.name for record in network.outputs] == [VECTOR]


def test_refuses_vectors_of_tokens_with_the_lines_to_add(plain, tmp_path):
    words = (
        r"gives last_hidden_state \[-1, -1, 32\], .*: let the build add the pooling, with "
        r"`pooling: \{mode: mean, normalize: true\}` under `source` in the model file"
    )
    with pytest.raises(SourceFault, match=words):
        text_network(tmp_path, plain, source={"onnx": "model.onnx"})


def test_refuses_a_pooling_of_a_network_that_gives_vectors(plain, tmp_path):
    model = onnx.load(plain)
    del model.graph.output[0]
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    shutil.copy(plain.with_name("tokenizer.json"), tmp_path)
    words = r"gives pooler_output \[-1, 32\], but `source.pooling` pools one output \[batch, seq"
    with pytest.raises(SourceFault, match=words):
        pooled(tmp_path, path, mode="mean")


LENGTHS = (7, 1, 4, 6)
WIDTH = 5
MODES = [(mode,) for mode in POOLERS] + [*combinations(("cls", "mean", "max"), 2)]


def rows(lengths=LENGTHS, longest=7):
    """Random vectors of tokens, one row all negative, and the mask."""
    random = torch.Generator().manual_seed(0)
    tokens = torch.randn((len(lengths), longest, WIDTH), generator=random)
    tokens[2] = -tokens[2].abs() - 1
    mask = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1)).long()
    return tokens, mask


@pytest.mark.parametrize("modes", MODES, ids="+".join)
def test_vectors_are_those_of_sentence_transformers(modes):
    tokens, mask = rows()
    features = {"token_embeddings": tokens, "attention_mask": mask}
    expected = Pooling(WIDTH, modes)(features)["sentence_embedding"]
    pooled = PoolingHead(modes)(tokens, mask)
    assert pooled.shape == (len(LENGTHS), len(modes) * WIDTH)
    assert torch.allclose(pooled, expected, atol=1e-6)


@pytest.mark.parametrize("mode", POOLERS)
def test_padding_changes_no_vector(mode):
    tokens, mask = rows()
    alone = PoolingHead((mode,))(tokens[1:2, :1], mask[1:2, :1])
    assert torch.allclose(PoolingHead((mode,))(tokens, mask)[1:2], alone, atol=1e-6)


def test_last_token_is_found_behind_padding_on_either_side():
    tokens, mask = rows()
    left = PoolingHead(("lasttoken",))(tokens.flip(1), mask.flip(1))
    assert torch.equal(left, tokens.flip(1)[:, -1])


@pytest.mark.parametrize("mode", POOLERS)
def test_half_precision_overflows_for_no_pooling(mode):
    tokens, mask = rows((2048, 3, 5), longest=2048)
    pooled = PoolingHead((mode,))(tokens.half(), mask)
    assert pooled.dtype == torch.float16 and torch.isfinite(pooled).all()


def test_every_mode_of_a_model_file_is_built():
    assert set(get_args(PoolingMode)) == set(POOLERS) == set(Pooling.POOLING_MODES)
