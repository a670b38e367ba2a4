"""Bytes of weights on one GPU, from the headers of the tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onboarding.text_generation.checkpoint import FLOATS, Checkpoint, TensorHeader
from onboarding.text_generation.kv_cache import key_value_heads
from onboarding.text_generation.platforms import SchemeRow

VOCABULARY_ROWS = 64
"""vLLM pads the vocabulary to a multiple of it."""
BYTES_16 = 2
PLAIN_ARCHITECTURES = ("llama", "mistral", "qwen2", "qwen3")
"""By model_type: all of their layers have the sizes that config.json names."""
_EMBEDDING = re.compile(
    r"(embed_tokens|wte|word_embeddings|embed_in|lm_head|embed_out|output)\.weight$"
)
_OUTPUT = re.compile(r"(lm_head|embed_out)\.weight$")
_KEY_VALUE = re.compile(r"\.(k_proj|v_proj|key|value)\.")
_REPLICATED = re.compile(
    r"\.(q_a_proj|kv_a_proj_with_mqa|gate|router|shared_expert_gate)\.(weight|bias)$"
)
_LAYER = re.compile(r"(^|\.)(layers|h|blocks|block)\.\d+\.")
_EXPERT = re.compile(r"\.experts\.")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Weights of one copy.

    `gpu_bytes` on each of its GPUs, `parameters` in all, `layer_parameters` that each token of a
    prompt is multiplied with: of a mixture of experts, those of the experts that it is sent to,
    without the output layer, which only the last token passes.
    """

    gpu_bytes: float
    parameters: int
    layer_parameters: float


def count_weights(checkpoint: Checkpoint, scheme: SchemeRow, tensor_parallel: int) -> Weights:
    """Return the weights of a checkpoint in a number format, on so many GPUs.

    A checkpoint that is quantized already keeps its own bytes. Embeddings, the output layer and
    norms stay in 16 bits; norms, routers and MLA's down-projections lie on every GPU, and so do
    keys' and values' projections where there are fewer heads than GPUs.
    """
    config = checkpoint.text_config
    heads = key_value_heads(config, int(config.get("num_attention_heads") or 1))
    is_tied = bool(config.get("tie_word_embeddings"))
    chosen, experts = _experts(config)
    total, parameters, active = 0.0, 0, 0.0
    for name, tensor, count in checkpoint.kinds:
        if is_tied and _OUTPUT.search(name):
            continue
        size = _bytes(name, tensor, scheme, is_quantized=checkpoint.is_quantized)
        total += count * size * _share(name, tensor, tensor_parallel, heads)
        parameters += count * tensor.elements
        if not _EMBEDDING.search(name):
            active += count * tensor.elements * (chosen / experts if _EXPERT.search(name) else 1)
    return Weights(gpu_bytes=total, parameters=parameters, layer_parameters=active)


def _bytes(name: str, tensor: TensorHeader, scheme: SchemeRow, *, is_quantized: bool) -> float:
    if is_quantized or tensor.dtype not in FLOATS:
        return tensor.bytes
    if _EMBEDDING.search(name) and len(tensor.shape) == 2:
        rows = -(-tensor.shape[0] // VOCABULARY_ROWS) * VOCABULARY_ROWS
        return rows * tensor.shape[1] * BYTES_16
    if is_linear(name, tensor):
        return tensor.elements * scheme.weight_bits / 8
    return tensor.elements * BYTES_16


def is_linear(name: str, tensor: TensorHeader) -> bool:
    """True for the weight of a linear layer, which formats of fewer bits are for."""
    return is_layer_matrix(name, tensor) and not is_replicated(name)


def is_layer_matrix(name: str, tensor: TensorHeader) -> bool:
    """True for the weight of a linear layer, those that lie on every GPU among them."""
    return len(tensor.shape) >= 2 and _LAYER.search(name) is not None and "norm" not in name


def is_replicated(name: str) -> bool:
    """True for the weight of a linear layer that lies whole on every GPU."""
    return _REPLICATED.search(name) is not None


def is_key_value(name: str) -> bool:
    """True for a projection of keys or values, of which each GPU holds at least one head."""
    return _KEY_VALUE.search(name) is not None


def _share(name: str, tensor: TensorHeader, tensor_parallel: int, kv_heads: int) -> float:
    if len(tensor.shape) < 2 or is_replicated(name):
        return 1.0
    if is_key_value(name):
        return max(1 / tensor_parallel, 1 / kv_heads)
    return 1 / tensor_parallel


def _experts(config: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many experts a token is sent to, and how many there are; 1 and 1 without any."""
    for key in ("n_routed_experts", "num_local_experts", "num_experts"):
        experts, chosen = config.get(key), config.get("num_experts_per_tok")
        if isinstance(experts, int) and isinstance(chosen, int) and experts >= chosen > 0:
            return chosen, experts
    return 1, 1


def mismatches(checkpoint: Checkpoint) -> str | None:
    """Return where config.json and the tensors disagree, in one sentence; None: nowhere seen."""
    config = checkpoint.text_config
    layers, hidden = config.get("num_hidden_layers"), config.get("hidden_size")
    numbers = {
        int(match[0].rstrip(".").rpartition(".")[2])
        for name in checkpoint.tensors
        if (match := _LAYER.search(name)) and "mtp" not in name
    }
    if isinstance(layers, int) and numbers and len(numbers) < layers:
        return f"config.json has num_hidden_layers {layers}, and the tensors are of {len(numbers)}"
    for name, tensor in checkpoint.tensors.items():
        is_embedding = name.endswith("embed_tokens.weight") and len(tensor.shape) == 2
        if is_embedding and isinstance(hidden, int) and tensor.shape[1] != hidden:
            columns = tensor.shape[1]
            return f"config.json has hidden_size {hidden}, and {name} has {columns} columns"
        words = config.get("vocab_size")
        if is_embedding and isinstance(words, int) and tensor.shape[0] < words:
            rows = tensor.shape[0]
            return f"config.json has vocab_size {words}, and {name} has {rows} rows"
    is_plain = config.get("model_type") in PLAIN_ARCHITECTURES and not checkpoint.is_quantized
    return _other_rows(checkpoint) if is_plain else None


def _other_rows(checkpoint: Checkpoint) -> str | None:
    """Return where the rows of plain projections are not those of config.json."""
    config = checkpoint.text_config
    heads, hidden = config.get("num_attention_heads"), config.get("hidden_size")
    if not isinstance(heads, int) or not isinstance(hidden, int) or heads < 1:
        return None
    size = config.get("head_dim") or hidden // heads
    expected = {
        "self_attn.k_proj.weight": ("num_key_value_heads", key_value_heads(config, heads) * size),
        "self_attn.q_proj.weight": ("num_attention_heads", heads * size),
        "mlp.up_proj.weight": ("intermediate_size", config.get("intermediate_size")),
    }
    for name, tensor, _ in checkpoint.kinds:
        key, rows = next((item for end, item in expected.items() if name.endswith(end)), ("", None))
        is_matrix = tensor.dtype in FLOATS and len(tensor.shape) == 2
        if is_matrix and isinstance(rows, int) and tensor.shape[0] != rows:
            return f"by {key} of config.json {name} has {rows} rows, and it has {tensor.shape[0]}"
    return None
