"""Checkpoints of known shapes, as headers alone, and trees that hold a text generator.

Plans that `check` refuses or accepts are in tests/fixtures/text_generation, as model files.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from onboarding.text_generation.checkpoint import Checkpoint, TensorHeader
from tests.unit.onboarding.trees import Change, tree_root

FIXTURES = Path(__file__).parents[3] / "fixtures"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
PLANS_FOLDER = FIXTURES / "text_generation"
BASE_PLAN = yaml.safe_load((PLANS_FOLDER / "base.yaml").read_text())
PLANS = yaml.safe_load((PLANS_FOLDER / "plans.yaml").read_text())


def headers(config: Mapping[str, Any], **stated: Any) -> Checkpoint:
    """Return the headers that a checkpoint of such a config would have, in BF16.

    `stated` are keys that its config.json has instead, whatever the tensors are.
    """
    hidden, words = config["hidden_size"], config["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, hidden),
        "lm_head.weight": (words, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(config["num_hidden_layers"]):
        for name, sizes in {**_attention(config), **_other(config)}.items():
            shapes[f"model.layers.{layer}.{name}"] = sizes
    if config.get("tie_word_embeddings"):
        del shapes["lm_head.weight"]
    tensors = {name: TensorHeader(dtype="BF16", shape=sizes) for name, sizes in shapes.items()}
    return Checkpoint(config={**config, **stated}, tensors=tensors)


def _attention(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    if "kv_lora_rank" in config:
        rank, rope = config["kv_lora_rank"], config["qk_rope_head_dim"]
        nope, size = config["qk_nope_head_dim"], config["v_head_dim"]
        return {
            "self_attn.q_proj.weight": (heads * (nope + rope), hidden),
            "self_attn.kv_a_proj_with_mqa.weight": (rank + rope, hidden),
            "self_attn.kv_a_layernorm.weight": (rank,),
            "self_attn.kv_b_proj.weight": (heads * (nope + size), rank),
            "self_attn.o_proj.weight": (hidden, heads * size),
        }
    size, kind = config.get("head_dim", hidden // heads), config.get("model_type")
    rows = {"q": heads * size, "k": config["num_key_value_heads"] * size}
    rows["v"] = rows["k"]
    found: dict[str, tuple[int, ...]] = {
        f"self_attn.{name}_proj.weight": (count, hidden) for name, count in rows.items()
    }
    found["self_attn.o_proj.weight"] = (hidden, heads * size)
    if kind == "qwen2":
        found |= {f"self_attn.{name}_proj.bias": (count,) for name, count in rows.items()}
    if kind in ("qwen3", "gemma3_text"):
        found |= {f"self_attn.{name}_norm.weight": (size,) for name in ("q", "k")}
    return found


def _other(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    norms = ["input_layernorm", "post_attention_layernorm"]
    if config.get("model_type") == "gemma3_text":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    return {
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
        **{f"{name}.weight": (hidden,) for name in norms},
    }


def llama(
    hidden: int, layers: int, heads: int, kv_heads: int, wide: int, **config: Any
) -> Checkpoint:
    """Return a Llama-shaped checkpoint with 128,256 words, whose config states some keys."""
    own = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": wide,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
    }
    return headers(own, **config)


LLAMA_8B = llama(4096, 32, 32, 8, 14_336)
LLAMA_70B = llama(8192, 80, 64, 8, 28_672)
SMOLLM = llama(576, 30, 9, 3, 1536)
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic"}
SHAPES = {
    "8b": LLAMA_8B,
    "70b": LLAMA_70B,
    "smollm": SMOLLM,
    "8b-fp8": llama(4096, 32, 32, 8, 14_336, quantization_config=FP8),
    "8b-nf4": llama(4096, 32, 32, 8, 14_336, quantization_config={"quant_method": "bitsandbytes"}),
    "mamba": llama(4096, 32, 32, 8, 14_336, mamba_d_state=16),
    "torn": llama(4096, 32, 32, 8, 14_336, hidden_size=2048),
    "heads": llama(4096, 32, 32, 4, 14_336, model_type="llama", num_key_value_heads=8),
    "words": llama(4096, 32, 32, 8, 14_336, vocab_size=200_000),
    "base-model": replace(LLAMA_8B, has_chat_template=False),
}


def adapter_files(
    folder: str,
    *,
    rank: int = 8,
    module: str = "model.layers.0.self_attn.q_proj",
    shape: tuple[int, int] = (4096, 4096),
    **config: Any,
) -> dict[str, Change]:
    """Return the files of a LoRA adapter of one module: inputs and outputs, headers alone."""
    own = {"r": rank, "lora_alpha": 16, "target_modules": ["q_proj"], "peft_type": "LORA"}
    header = {
        f"base_model.model.{module}.lora_A.weight": [rank, shape[0]],
        f"base_model.model.{module}.lora_B.weight": [shape[1], rank],
    }
    tensors = {
        name: {"dtype": "BF16", "shape": size, "data_offsets": [0, 0]}
        for name, size in header.items()
    }
    text = json.dumps(tensors).encode()
    return {
        f"{folder}/adapter_config.json": json.dumps({**own, **config}),
        f"{folder}/adapter_model.safetensors": len(text).to_bytes(8, "little") + text,
    }  # fmt: skip


ADAPTERS = {
    **adapter_files("adapters/faq"),
    **adapter_files("adapters/rank-32", rank=32),
    **adapter_files("adapters/layer-40", module="model.layers.40.self_attn.q_proj"),
    **adapter_files("adapters/narrow", shape=(2048, 2048)),
    **adapter_files("adapters/other-base", base_model_name_or_path="acme/other"),
    **adapter_files("adapters/dora", use_dora=True),
    **adapter_files("adapters/pickle"),
    "adapters/pickle/optimizer.pt": b"",
    **adapter_files("adapters/no-weights"),
    "adapters/no-weights/adapter_model.safetensors": None,
}


def generator_tree(folder: Path, text: str, changes: dict[str, Change] | None = None) -> Path:
    """Return a tree with models/chat.yaml, the headers of every shape and an environment.

    The adapters are there where the text names one.
    """
    headers = {f"models/data/{name}.json": shape.document() for name, shape in SHAPES.items()}
    adapters = {
        name: content
        for name, content in ADAPTERS.items()
        if content is not None and "/".join(name.split("/")[:2]) in text
    }
    return tree_root(folder, {"models/chat.yaml": text, **headers, **adapters, **(changes or {})})


def plan_text(change: Mapping[str, Any]) -> str:
    """Return the model file of a plan."""
    data = _merge(copy.deepcopy(BASE_PLAN), change)
    return yaml.safe_dump(data, sort_keys=False, width=10_000)


def _merge(base: dict[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in change.items():
        if value is None:
            base.pop(key, None)
        elif isinstance(value, Mapping):
            base[key] = _merge(dict(base.get(key, {})), value)
        else:
            base[key] = value
    return base
