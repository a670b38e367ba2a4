"""Shapes of text generators that ran on an H200: config.json, and headers without weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onboarding.text_generation.checkpoint import Checkpoint, TensorHeader

COMMON: Mapping[str, Any] = {
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}


def _llama(hidden: int, layers: int, heads: int, wide: int, **changes: Any) -> dict[str, Any]:
    return {
        **COMMON,
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": hidden // heads,
        "intermediate_size": wide,
        "vocab_size": 128_256,
        "max_position_embeddings": 131_072,
        "rope_theta": 500_000.0,
        "tie_word_embeddings": False,
        **changes,
    }


CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "8b": _llama(4096, 32, 32, 14_336),
    "70b": _llama(8192, 80, 64, 28_672),
    "qwen2.5-1.5b": {
        **_llama(1536, 28, 12, 8960),
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "num_key_value_heads": 2,
        "vocab_size": 151_936,
        "max_position_embeddings": 32_768,
        "tie_word_embeddings": True,
        "use_sliding_window": False,
    },
    "qwen3-32b": {
        **_llama(5120, 64, 64, 25_600),
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "head_dim": 128,
        "vocab_size": 151_936,
        "max_position_embeddings": 40_960,
        "attention_bias": False,
        "use_sliding_window": False,
    },
    "gemma3-4b": {
        **_llama(2560, 34, 8, 10_240),
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262_208,
        "sliding_window": 1024,
        "sliding_window_pattern": 6,
        "query_pre_attn_scalar": 256,
        "hidden_activation": "gelu_pytorch_tanh",
        "tie_word_embeddings": True,
    },
    "deepseek-v2-lite-dense": {
        **_llama(2048, 27, 16, 10_944),
        "architectures": ["DeepseekV2ForCausalLM"],
        "model_type": "deepseek_v2",
        "num_key_value_heads": 16,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "head_dim": 64,
        "vocab_size": 102_400,
        "n_routed_experts": 2,
        "num_experts_per_tok": 1,
        "first_k_dense_replace": 27,
    },
}
"""config.json by name; the last has DeepSeek-V2-Lite's attention and its first layer's width."""


def headers(shape: str) -> Checkpoint:
    """Return the headers that the shape's checkpoint would have, in BF16."""
    config = CONFIGS[shape]
    hidden, words = int(config["hidden_size"]), int(config["vocab_size"])
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (words, hidden),
        "lm_head.weight": (words, hidden),
        "model.norm.weight": (hidden,),
    }
    for layer in range(int(config["num_hidden_layers"])):
        for name, sizes in {**_attention(config), **_other(config)}.items():
            shapes[f"model.layers.{layer}.{name}"] = sizes
    if config["tie_word_embeddings"]:
        del shapes["lm_head.weight"]
    return Checkpoint(
        config=config,
        tensors={name: TensorHeader(dtype="BF16", shape=sizes) for name, sizes in shapes.items()},
    )


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
    size = config["head_dim"]
    rows = {"q": heads * size, "k": config["num_key_value_heads"] * size}
    rows["v"] = rows["k"]
    found: dict[str, tuple[int, ...]] = {
        f"self_attn.{name}_proj.weight": (count, hidden) for name, count in rows.items()
    }
    found["self_attn.o_proj.weight"] = (hidden, heads * size)
    if config["model_type"] == "qwen2":
        found |= {f"self_attn.{name}_proj.bias": (count,) for name, count in rows.items()}
    if config["model_type"] in ("qwen3", "gemma3_text"):
        found |= {f"self_attn.{name}_norm.weight": (size,) for name in ("q", "k")}
    return found


def _other(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, wide = config["hidden_size"], config["intermediate_size"]
    norms = ["input_layernorm", "post_attention_layernorm"]
    if config["model_type"] == "gemma3_text":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    return {
        "mlp.gate_proj.weight": (wide, hidden),
        "mlp.up_proj.weight": (wide, hidden),
        "mlp.down_proj.weight": (hidden, wide),
        **{f"{name}.weight": (hidden,) for name in norms},
    }
