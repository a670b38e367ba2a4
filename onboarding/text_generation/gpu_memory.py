"""What one GPU holds: weights, LoRA adapters, and what is left for the cache.

Source of the adapters: `create_lora_weights` of vllm/lora/layers and `LoRAModelManager` of vLLM
0.30.0, read and compared with what it allocates (docs/text-generation.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onboarding.text_generation.adapter import embedding_modules
from onboarding.text_generation.checkpoint import Checkpoint, TensorHeader
from onboarding.text_generation.kv_cache import key_value_heads
from onboarding.text_generation.platforms import Gpu, overhead
from onboarding.text_generation.weights import (
    BYTES_16,
    Weights,
    is_key_value,
    is_layer_matrix,
    is_replicated,
)

GIB = 1 << 30
WORD_BITS = 32
"""Bits of one number of AWQ, GPTQ and compressed-tensors, which hold several weights each."""
FUSED_ADAPTERS = ("gpt_oss", "qwen3_vl_moe")
"""Begins of model_type of which one matrix A serves gate and up of an expert (is_3d_moe_weight)."""
_MATRIX = re.compile(r"\.(weight|weight_packed|qweight)$")
_EXPERTS = re.compile(
    r"(\.experts\.(?P<name>gate_up_proj|gate_proj|up_proj|down_proj|w13|w1|w2|w3)(_blocks|\.weight)?"
    r"|\.block_sparse_moe\.(?P<linear>input_linear|output_linear)\.weight)$"
)
"""All experts of a layer in one tensor: (experts, inputs, outputs), or the latter two turned."""
_ROW_PARALLEL = re.compile(
    r"\.(o_proj|down_proj|out_proj|c_proj|fc2|w2|wo|dense_4h_to_h)\.(weight|weight_packed|qweight)$"
)


@dataclass(frozen=True, kw_only=True)
class GpuMemory:
    """What one GPU holds beside the weights, and what is left for the cache."""

    overhead_gib: float
    extra_bytes: float
    cache_bytes: float
    is_measured: bool


def gpu_memory(
    weights: Weights,
    gpu: Gpu,
    engine_version: str | None,
    utilization: float,
    step_numbers: float,
    extra_bytes: float = 0.0,
) -> GpuMemory | None:
    """Return how one GPU's memory is divided; None where its size is not known.

    cache = total x utilization - weights - adapters - overhead. The cache may be
    negative. `step_numbers`: of an MLP on one GPU in the largest step.
    """
    if gpu.memory_gib is None:
        return None
    row = overhead(engine_version, gpu.name)
    overhead_gib = row.gib + row.step_arrays * step_numbers * BYTES_16 / GIB
    left = gpu.memory_gib * utilization - overhead_gib
    return GpuMemory(
        overhead_gib=overhead_gib,
        extra_bytes=extra_bytes,
        cache_bytes=left * GIB - weights.gpu_bytes - extra_bytes,
        is_measured=row.measured,
    )


def mlp_width(config: Mapping[str, Any]) -> int:
    """Return the numbers that a token has between the matrices of an MLP, in all its experts."""
    sizes = "intermediate_size", "hidden_size", "moe_intermediate_size", "num_experts_per_tok"
    given, hidden, expert, count = (_largest(config.get(name)) for name in sizes)
    wide = given or 4 * hidden
    return max(wide, (expert or wide) * (count or 1))


def _largest(size: Any) -> int:
    """Return a size, or the largest of a list with one for each layer; 0 of anything else."""
    sizes = size if isinstance(size, list) else [size]
    return max((one for one in sizes if type(one) is int), default=0)


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
        if not is_layer_matrix(name, tensor):
            continue
        if len(tensor.shape) > 2 and (experts := _EXPERTS.search(name)) is not None:
            kind = experts["name"] or experts["linear"]
            numbers += count * _expert_numbers(kind, tensor, config, tensor_parallel)
            continue
        if not _MATRIX.search(name):
            continue  # Scales, zero points and biases of quantized layers.
        outputs, inputs = _sizes(name, tensor, checkpoint.quantization or {})
        if is_replicated(name):
            numbers += count * (inputs + outputs)
        elif _ROW_PARALLEL.search(name):
            numbers += count * (inputs / tensor_parallel + outputs)
        else:
            share = 1 / tensor_parallel
            if is_key_value(name):
                share = max(share, 1 / heads)
            numbers += count * (inputs + outputs * share)
    words, hidden = config.get("vocab_size") or 0, config.get("hidden_size") or 0
    numbers += len(embedding_modules(config.get("model_type"))) * (words + hidden)
    return slots * rank * numbers * BYTES_16


def _expert_numbers(
    kind: str, tensor: TensorHeader, config: Mapping[str, Any], tensor_parallel: int
) -> float:
    """Return the numbers of both matrices for all experts of a tensor, by rank 1."""
    experts, *sizes = tensor.shape
    hidden = config.get("hidden_size") or sizes[-1]
    wide = math.prod(sizes) * _numbers_a_value(tensor) / hidden / tensor_parallel
    is_two = kind in ("gate_up_proj", "w13", "input_linear")
    is_fused = str(config.get("model_type")).startswith(FUSED_ADAPTERS)
    return experts * (wide + hidden * (2 if is_two and not is_fused else 1))


def _sizes(name: str, tensor: TensorHeader, quantization: Mapping[str, Any]) -> tuple[float, float]:
    """Return outputs and inputs of a linear layer, whose weights may be packed."""
    first, second = tensor.shape[-2:]
    if name.endswith(".qweight"):
        packed = WORD_BITS / (quantization.get("bits") or 4)
        method = f"{quantization.get('quant_method')} {quantization.get('packing_format')}"
        return (second * packed, first) if "awq" in method else (second, first * packed)
    return first, second * _numbers_a_value(tensor)


def _numbers_a_value(tensor: TensorHeader) -> int:
    """Return how many weights of 4 bits one number of a tensor holds; 1 of other types."""
    return {"I32": WORD_BITS // 4, "U8": 2}.get(tensor.dtype, 1)
