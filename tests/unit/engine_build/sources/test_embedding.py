"""An embedding is what sentence-transformers' encode() gives, or the checkpoint is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Normalize
from sentence_transformers.sentence_transformer.modules import (
    Dropout,
    LayerNorm,
)
from tokenizers import Tokenizer

from engine_build.datasets.text import TextEncoder
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.embedding import (
    PROMPTS_FILE,
    embedding_pipeline,
    reference_encoder,
    refuse_other_vectors,
    served_prompts,
)
from engine_build.sources.export import export
from engine_build.sources.given_network import encoder_for
from engine_build.sources.source_model import SourceModel
from onboarding.model_spec import ModelSpec
from tests.unit.engine_build.embedders import (
    OUT,
    dense,
    pooling,
    write_decoder,
    write_embedder,
    write_t5,
)
from tests.unit.engine_build.tiny import (
    WIDTH,
    model,
    sample_texts,
)

OLD = "sentence_transformers.models"
NEW = "sentence_transformers.sentence_transformer.modules"
TYPES = {
    "old": {name: f"{OLD}.{name}" for name in ("Transformer", "Pooling", "Normalize", "Dense")},
    "new": {
        "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
        "Pooling": f"{NEW}.pooling.Pooling",
        "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
        "Dense": "sentence_transformers.base.modules.dense.Dense",
    },
}
BOOLEANS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
}
every_style = pytest.mark.parametrize("style", TYPES)


def pooling_config(style, *modes):
    """A Pooling module's config.json as a version of sentence-transformers writes it."""
    if style == "new":
        return {
            "embedding_dimension": WIDTH,
            "pooling_mode": modes[0] if len(modes) == 1 else list(modes),
            "include_prompt": True,
        }
    chosen = {name: mode in modes for mode, name in BOOLEANS.items()}
    return {"word_embedding_dimension": WIDTH, **chosen, "pooling_mode_mean_sqrt_len_tokens": False}


@pytest.fixture
def with_modules(checkpoint, tmp_path):
    """Writes a copy of the tiny checkpoint with modules; a module's config is optional."""

    def write(style, *modules):
        folder = shutil.copytree(checkpoint, tmp_path / "checkpoint")
        listed = []
        for index, (name, config) in enumerate(modules):
            path = "" if name == "Transformer" else f"{index}_{name}"
            kind = TYPES[style].get(name, name)
            listed.append({"idx": index, "name": str(index), "path": path, "type": kind})
            if path:
                (folder / path).mkdir()
                (folder / path / "config.json").write_text(json.dumps(config or {}))
        (folder / "modules.json").write_text(json.dumps(listed))
        return folder

    return write


@pytest.fixture
def cased_checkpoint(checkpoint, tmp_path):
    """The tiny checkpoint with a tokenizer that keeps capital letters."""
    folder = shutil.copytree(checkpoint, tmp_path / "cased")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = None
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def cosines(folder, tmp_path, prompt=""):
    """The network's vectors of 200 texts against those of `encode()`."""
    texts = sample_texts(200, seed=3)
    encoded = SentenceTransformer(str(folder), device="cpu").encode(texts)
    # The reference uses the attention that is exported, encode() by default a fused one.
    assert np.allclose(reference_encoder(folder, 16, prompt)(texts), encoded, atol=1e-5)
    source = SourceModel(folder, longest=16)
    network = export(source, texts[:30], tmp_path, longest=16)
    encoder = TextEncoder(network.tokenizer, inputs=network.input_names, longest=16, prompt=prompt)
    rows = OrtNetwork(network.path).rows(encoder.feed(texts))
    assert np.abs(rows - encoded).max() < 1e-4
    lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(encoded, axis=1)
    return (rows * encoded).sum(axis=1) / lengths


@every_style
@pytest.mark.parametrize("modes", [("mean",), ("cls",), ("max",), ("cls", "max", "mean")])
@pytest.mark.parametrize("normalize", [True, False])
def test_pipeline_is_read_as_it_was_saved(style, modes, normalize, with_modules):
    last = [("Normalize", None)] if normalize else []
    modules = [("Transformer", None), ("Pooling", pooling_config(style, *modes)), *last]
    pipeline = embedding_pipeline(with_modules(style, *modules))
    assert (pipeline.poolings, len(pipeline.heads)) == (modes, len(last))


MODULES = {
    "lasttoken": lambda: [pooling("lasttoken")],
    "cls+max-dense-layernorm-normalize": lambda: [
        pooling("cls", "max"),
        dense(2 * WIDTH),
        LayerNorm(OUT),
        Dropout(),
        Normalize(),
    ],
    "mean-normalize-dense-identity-no-bias": lambda: [
        pooling("mean"),
        Normalize(),
        dense(activation=torch.nn.Identity(), bias=False),
    ],
}


@pytest.mark.parametrize("modules", MODULES)
def test_network_gives_what_encode_gives(modules, checkpoint, tmp_path):
    folder = write_embedder(tmp_path / "saved", checkpoint, *MODULES[modules]())
    assert cosines(folder, tmp_path).min() >= 0.9999


def test_decoder_gives_what_encode_gives(tmp_path):
    decoder = write_decoder(tmp_path / "decoder")
    modules = [pooling("lasttoken"), Normalize()]
    folder = write_embedder(
        tmp_path / "saved", decoder, *modules, processor_kwargs={"padding_side": "left"}
    )
    assert cosines(folder, tmp_path).min() >= 0.9999


def test_decoder_of_a_t5_is_left_out(tmp_path):
    folder = write_t5(tmp_path / "t5")
    assert "decoder.block.0.layer.0.layer_norm.weight" in load_file(folder / "model.safetensors")
    assert cosines(folder, tmp_path).min() >= 0.9999


def test_lower_casing_is_put_into_the_tokenizer(cased_checkpoint, tmp_path):
    folder = write_embedder(
        tmp_path / "saved", cased_checkpoint, pooling("mean"), do_lower_case=True
    )
    texts = ["The Cat SAT", "a dog"]
    encoded = SentenceTransformer(str(folder), device="cpu").encode(texts)
    network = export(SourceModel(folder, longest=16), texts, tmp_path, longest=16)
    rows = OrtNetwork(network.path).rows(encoder_for(network, 16).feed(texts))
    assert np.abs(rows - encoded).max() < 1e-5
    assert np.abs(encoded[0] - reference_encoder(folder, 16)(["the cat sat"])[0]).max() < 1e-5


def test_prompt_is_put_before_texts_and_counts_when_they_are_cut(checkpoint, tmp_path):
    prompts = {"query": "find a blue train : ", "document": ""}
    folder = write_embedder(
        tmp_path / "saved",
        checkpoint,
        pooling("mean"),
        prompts=prompts,
        default_prompt_name="query",
        max_seq_length=16,
    )
    assert cosines(folder, tmp_path, prompts["query"]).min() >= 0.9999


def test_refuses_sequences_beyond_those_of_encode(checkpoint, tmp_path):
    folder = write_embedder(tmp_path / "saved", checkpoint, pooling("mean"), max_seq_length=12)
    words = r"cuts texts at 12 tokens \(max_seq_length in .*\), but a profile goes up to 16; lower"
    with pytest.raises(SourceFault, match=words):
        SourceModel(folder, longest=16)
    SourceModel(folder, longest=12)


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"activation_function": "mine.Swish"}, r"activation function mine.Swish, whose code is"),
        (
            {"module_input_name": "token_embeddings"},
            r"has the input token_embeddings; allowed",
        ),
        ({"out_features": OUT + 1}, r"2_Dense \(Dense\) cannot be loaded"),
        ({}, r"2_Dense \(Dense\) has no model.safetensors; pickled"),
    ],
)
def test_refuses_a_dense_head_that_is_not_reproduced(changes, fault, checkpoint, tmp_path):
    folder = write_embedder(tmp_path / "saved", checkpoint, pooling("mean"), dense())
    path = folder / "2_Dense" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    if not changes:
        (folder / "2_Dense/model.safetensors").rename(folder / "2_Dense/pytorch_model.bin")
    with pytest.raises(SourceFault, match=fault):
        SourceModel(folder, longest=16)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        *(([item], "has a module without a type or a path") for item in (1, {}, None)),
        ([{"type": "a.Transformer"}], "has a module without a type or a path"),
        ({}, "holds dict, not a list"),
    ],
)
def test_refuses_modules_that_are_none(content, words, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps(content or {}))
    with pytest.raises(SourceFault, match=words):
        embedding_pipeline(tmp_path)


@pytest.mark.parametrize(
    ("second", "limit", "words"),
    [
        (("mine.Pooling", {}), 8, r"the modules Transformer, mine.Pooling; allowed"),
        (
            ("Pooling", pooling_config("new", "odd")),
            8,
            r"1_Pooling/config.json of the checkpoint does not say how it pools",
        ),
        (
            ("Pooling", pooling_config("new", "mean")),
            "many",
            r"max_seq_length in sentence_bert_config.json .* 'many'",
        ),
    ],
)
def test_refuses_a_pipeline_that_it_cannot_read(second, limit, words, with_modules):
    folder = with_modules("new", ("Transformer", None), second)
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": limit}))
    with pytest.raises(SourceFault, match=words):
        embedding_pipeline(folder)


def test_refuses_a_module_folder_elsewhere(with_modules):
    folder = with_modules("new", ("Transformer", None), ("Pooling", {}))
    listed = json.loads((folder / "modules.json").read_text())
    listed[1]["path"] = "../elsewhere"
    (folder / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(SourceFault, match=r"names the folder '../elsewhere'"):
        embedding_pipeline(folder)


def test_refuses_vectors_that_are_not_those_of_encode():
    vectors = np.eye(3, 4, dtype=np.float32)
    refuse_other_vectors(vectors, vectors + 1e-5)
    with pytest.raises(SourceFault, match=r"encode\(\) \(by 1, smallest cosine 0.0000\)"):
        refuse_other_vectors(vectors, np.roll(vectors, 1, axis=1))
    with pytest.raises(SourceFault, match=r"\[4\] against \[3\] values"):
        refuse_other_vectors(vectors, vectors[:, :3])


DECLARED = {"prompts": {"query": "find ", "document": None}, "default_prompt_name": "query"}


def spec(task="text-embedding", **source):
    data = model(task=task, source={"python_package": "a==1", **source})
    return ModelSpec.model_validate_json(json.dumps(data))


@pytest.fixture
def declaring(tmp_path):
    """Writes a checkpoint's configuration of sentence-transformers."""

    def write(**declared):
        (tmp_path / PROMPTS_FILE).write_text(json.dumps(declared))
        return tmp_path

    return write


NO_TEXTS = rf"the prompts in {PROMPTS_FILE} of the checkpoint are"


@pytest.mark.parametrize(
    ("declared", "source", "words"),
    [
        (
            DECLARED,
            {"default_prompt_name": "title"},
            r"default_prompt_name is 'title', but the prompts are document, query; name one",
        ),
        ({"default_prompt_name": "query"}, {}, r"'query', but the prompts are none; name one"),
        *(({"prompts": p}, {}, NO_TEXTS) for p in (["query: "], {"query": 3}, "query: ")),
    ],
)
def test_refuses_prompts_that_are_none(declared, source, words, declaring):
    with pytest.raises(SourceFault, match=words):
        served_prompts(declaring(**declared), spec(**source))


def test_refuses_a_pooling_that_leaves_prompts_out(declaring):
    folder = declaring(**DECLARED)
    kinds = {"": "Transformer", "1_Pooling": "Pooling"}
    modules = [
        {"path": path, "type": f"sentence_transformers.models.{kind}"}
        for path, kind in kinds.items()
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 4, "include_prompt": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    with pytest.raises(SourceFault, match=r"leaves its prompts' tokens out of its pooling"):
        served_prompts(folder, spec())
    assert not served_prompts(declaring(prompts={"query": ""}), spec()).differ
