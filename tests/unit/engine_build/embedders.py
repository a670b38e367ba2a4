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


def pooling(*modes: str, **settings: Any) -> Pooling:
    """A Pooling of one mode, or of several that are concatenated."""
    return Pooling(WIDTH, modes, **settings)


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


def write_decoder(folder: Path, kind: str, **settings: Any) -> Path:
    """A checkpoint of a decoder with rotary positions, such as Qwen2; texts end in [SEP]."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=tokenizer.get_vocab_size() + 8,  # transformers may add tokens of the class
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        max_position_embeddings=64,
        initializer_range=0.2,
        **({"head_dim": 16} | settings),
    )
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder)
    return folder


def write_t5(folder: Path, kind: str, **settings: Any) -> Path:
    """A checkpoint of a T5 with its decoder; `kind` is T5, or one of its family."""
    torch.manual_seed(0)
    tokenizer = word_tokenizer()
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=tokenizer.get_vocab_size() + 8,  # real ones have rows without a token too
        d_model=WIDTH,
        d_kv=16,
        d_ff=64,
        num_layers=2,
        num_heads=2,
        decoder_start_token_id=0,
        **settings,
    )
    model = getattr(transformers, f"{kind}Model")(config)
    with torch.no_grad():
        model.encoder.block[0].layer[0].SelfAttention.relative_attention_bias.weight.normal_()
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    write_tokenizer_config(folder)
    return folder
