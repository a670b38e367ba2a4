"""Small random embedders as sentence-transformers itself saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from tests.unit.engine_build.tiny import WIDTH, word_tokenizer, write_tokenizer_config

OUT = 12


def pooling(*modes: str) -> Pooling:
    """A Pooling of one mode, or of several that are concatenated."""
    return Pooling(WIDTH, modes)


def dense(width: int = WIDTH, *, activation: Any = None, **settings: Any) -> Dense:
    """A Dense head with random weights, by default of Tanh."""
    torch.manual_seed(1)
    function = torch.nn.Tanh() if activation is None else activation
    return Dense(width, OUT, activation_function=function, **settings)


def write_embedder(folder: Path, checkpoint: Path, *modules: Any, **settings: Any) -> Path:
    """Save a checkpoint of transformers with modules after it; `settings` are the Transformer's."""
    prompts = {name: settings.pop(name, None) for name in ("prompts", "default_prompt_name")}
    model = SentenceTransformer(
        modules=[Transformer(str(checkpoint), **settings), *modules], device="cpu", **prompts
    )
    model.save(str(folder))
    return folder


def write_decoder(folder: Path) -> Path:
    """A checkpoint of Qwen3, a decoder with rotary positions; texts end in [SEP]."""
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=word_tokenizer().get_vocab_size() + 8,  # as transformers adds tokens of a class
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
        head_dim=16,
    )
    return _save(transformers.Qwen3Model(config), folder)


def write_t5(folder: Path) -> Path:
    """A checkpoint of UMT5, an encoder with its decoder."""
    torch.manual_seed(0)
    config = transformers.UMT5Config(
        vocab_size=word_tokenizer().get_vocab_size() + 8,  # real ones have rows without a token too
        d_model=WIDTH,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        feed_forward_proj="gated-gelu",
    )
    model = transformers.UMT5Model(config)
    with torch.no_grad():
        model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.normal_()
    return _save(model, folder)


def _save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    word_tokenizer().save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder)
    return folder
