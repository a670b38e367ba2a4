"""An embedding is what sentence-transformers' encode() gives, or the checkpoint is refused."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from engine_build.datasets.text import TextEncoder
from engine_build.errors import SourceFault
from engine_build.ort import OrtNetwork
from engine_build.sources.embedding import (
    EmbeddingPipeline,
    embedding_pipeline,
    reference_encoder,
    refuse_other_vectors,
)
from engine_build.sources.export import export
from engine_build.sources.source_model import SourceModel
from tests.unit.engine_build.tiny import WIDTH, sample_texts

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


def exported_rows(folder, tmp_path, texts):
    source = SourceModel(folder, longest=16)
    network = export(source, texts, tmp_path, longest=16)
    encoder = TextEncoder(network.tokenizer, inputs=network.input_names, longest=16)
    return OrtNetwork(network.path).rows(encoder.feed(texts))


@every_style
@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("normalize", [True, False])
def test_network_gives_what_encode_gives(style, pooling, normalize, with_modules, tmp_path):
    last = [("Normalize", None)] if normalize else []
    modules = [("Transformer", None), ("Pooling", pooling_config(style, pooling)), *last]
    folder, texts = with_modules(style, *modules), sample_texts(30, seed=3)
    assert embedding_pipeline(folder) == EmbeddingPipeline(pooling=pooling, normalize=normalize)
    encoded = SentenceTransformer(str(folder), device="cpu").encode(texts)
    rows = exported_rows(folder, tmp_path, texts)
    assert np.abs(rows - encoded).max() < 1e-5
    assert bool(np.allclose(np.linalg.norm(rows, axis=1), 1)) is normalize
    # The reference uses the attention that is exported, encode() by default a fused one.
    assert np.allclose(reference_encoder(folder, 16)(texts), encoded, atol=1e-6)


def test_checkpoint_that_sentence_transformers_itself_saved_is_read(checkpoint, tmp_path):
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    modules = [Transformer(str(checkpoint)), Pooling(WIDTH, "cls")]
    SentenceTransformer(modules=modules, device="cpu").save(str(tmp_path / "saved"))
    assert embedding_pipeline(tmp_path / "saved") == EmbeddingPipeline(
        pooling="cls", normalize=False
    )


def test_checkpoint_without_modules_is_pooled_by_the_mean_and_not_normalised(checkpoint, tmp_path):
    texts = sample_texts(30, seed=3)
    encoded = SentenceTransformer(str(checkpoint), device="cpu").encode(texts)
    assert np.abs(exported_rows(checkpoint, tmp_path, texts) - encoded).max() < 1e-5
    assert np.linalg.norm(encoded, axis=1).min() > 1.5


@every_style
@pytest.mark.parametrize(("modes", "named"), [(["max"], "max"), (["cls", "mean"], r"cls \+ mean")])
def test_refuses_another_pooling(style, modes, named, with_modules):
    folder = with_modules(style, ("Transformer", None), ("Pooling", pooling_config(style, *modes)))
    words = rf"pools by {named}; allowed: mean, cls. Export .* as `source.onnx`"
    with pytest.raises(SourceFault, match=words):
        SourceModel(folder, longest=16)


@every_style
def test_refuses_a_dense_head(style, with_modules):
    pooling = ("Pooling", pooling_config(style, "mean"))
    folder = with_modules(style, ("Transformer", None), pooling, ("Dense", {"in_features": WIDTH}))
    words = r"the modules Transformer, Pooling, Dense; allowed: Transformer, Pooling, and Norm"
    with pytest.raises(SourceFault, match=words):
        SourceModel(folder, longest=16)


def test_refuses_modules_of_other_packages(with_modules):
    folder = with_modules("new", ("Transformer", None), ("mine.Pooling", {}))
    with pytest.raises(SourceFault, match=r"the modules Transformer, mine.Pooling; allowed"):
        embedding_pipeline(folder)


def test_refuses_an_unknown_pooling_mode(with_modules):
    folder = with_modules("new", ("Transformer", None), ("Pooling", pooling_config("new", "odd")))
    words = r"1_Pooling/config.json of the checkpoint does not say how it pools"
    with pytest.raises(SourceFault, match=words):
        embedding_pipeline(folder)


@pytest.mark.parametrize("content", [[1], [{}], [None], [{"type": "a.Transformer"}]])
def test_refuses_modules_without_a_type_or_a_path(content, tmp_path):
    (tmp_path / "modules.json").write_text(json.dumps(content))
    with pytest.raises(SourceFault, match=r"has a module without a type or a path"):
        embedding_pipeline(tmp_path)


def test_refuses_modules_that_are_no_list(tmp_path):
    (tmp_path / "modules.json").write_text("{}")
    with pytest.raises(SourceFault, match="holds dict, not a list"):
        embedding_pipeline(tmp_path)


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
