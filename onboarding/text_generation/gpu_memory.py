"""What one GPU holds: weights, LoRA adapters, a draft model, and what is left for the cache.

Source of the adapters: `create_lora_weights` of vllm/lora/layers and `LoRAModelManager` of vLLM
0.30.0, read and compared with what it allocates (docs/text-generation.md).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from onboarding.text_generation.adapter import WITHOUT_EMBEDDINGS
from onboarding.text_generation.checkpoint import Checkpoint, TensorHeader
from onboarding.text_generation.kv_cache import key_value_heads
from onboarding.text_generation.platforms import Gpu, overhead, schemes
from onboarding.text_generation.weights import (
    BYTES_16,
    Weights,
    count_weights,
    is_key_value,
    is_layer_matrix,
    is_replicated,
)

GIB = 1 << 30
PACKED = 8
"""Weights of 4 bits in one 32-bit number."""
_ROW_PARALLEL = re.compile(
    r"\.(o_proj|down_proj|out_proj|c_proj|fc2|w2|wo|dense_4h_to_h)\.(weight|weight_packed|qweight)$"
)


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """What one GPU holds: bytes of weights, and what is left for the cache."""

    total_gib: float
    overhead_gib: float
    weights: Weights
    extra_bytes: float
    cache_bytes: float
    is_measured: bool


def gpu_memory(
    weights: Weights,
    gpu: Gpu,
    engine_version: str | None,
    utilization: float,
    extra_bytes: float = 0.0,
) -> GpuMemory | None:
    """Return how one GPU's memory is divided; None where its size is not known.

    cache = total x utilization - weights - adapters and draft model - overhead. The cache may be
    negative.
    """
    if gpu.memory_gib is None:
        return None
    row = overhead(engine_version, gpu.name)
    left = gpu.memory_gib * utilization - row.gib
    return GpuMemory(
        total_gib=gpu.memory_gib,
        overhead_gib=row.gib,
        weights=weights,
        extra_bytes=extra_bytes,
        cache_bytes=left * GIB - weights.gpu_bytes - extra_bytes,
        is_measured=row.measured,
    )


def adapter_bytes(checkpoint: Checkpoint, slots: int, rank: int, tensor_parallel: int) -> float:
    """Return the bytes that vLLM allocates for adapters when it starts, on one GPU.

    `slots` is --max-loras, `rank` --max-lora-rank. Each slot has both matrices of every linear
    layer, whatever an adapter changes, in 16 bits: A (rank x inputs) and B (outputs x rank). Of a
    layer that is cut by its outputs, B is cut; of one that is cut by its inputs, A is.
    """
    config = checkpoint.text_config
    heads = key_value_heads(config, int(config.get("num_attention_heads") or 1))
    numbers = 0.0
    for name, tensor, count in checkpoint.kinds:
        if not is_layer_matrix(name, tensor) or tensor.dtype.startswith("F8_E8"):
            continue
        outputs, inputs = _sizes(name, tensor)
        if is_replicated(name):
            numbers += count * (inputs + outputs)
        elif _ROW_PARALLEL.search(name):
            numbers += count * (inputs / tensor_parallel + outputs)
        else:
            share = 1 / tensor_parallel
            if is_key_value(name):
                share = max(share, 1 / heads)
            numbers += count * (inputs + outputs * share)
    if config.get("model_type") not in WITHOUT_EMBEDDINGS:
        words, hidden = config.get("vocab_size") or 0, config.get("hidden_size") or 0
        numbers += 2 * (words + hidden)
    return slots * rank * numbers * BYTES_16


def draft_bytes(draft: Checkpoint, tensor_parallel: int) -> float:
    """Return the bytes of a draft model's weights on one GPU; it is as parallel as the model."""
    return count_weights(draft, schemes()["bf16"], tensor_parallel).gpu_bytes


def _sizes(name: str, tensor: TensorHeader) -> tuple[int, int]:
    """Return outputs and inputs of a linear layer, whose 4-bit weights may be packed."""
    first, second = tensor.shape[-2:]
    if name.endswith(".weight_packed"):
        return first, second * (PACKED if tensor.dtype == "I32" else 2)
    if name.endswith(".qweight"):
        return second, first * PACKED
    return first, second
