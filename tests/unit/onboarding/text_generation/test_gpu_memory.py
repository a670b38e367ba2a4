"""Memory of LoRA adapters is what vLLM allocates for them."""

from __future__ import annotations

import json

import pytest

from onboarding.generation_resolve import generation_plans
from onboarding.text_generation.adapter import ENGINE_RANKS, engine_rank
from onboarding.text_generation.checkpoint import Checkpoint, TensorHeader
from onboarding.text_generation.gpu_memory import GIB, adapter_bytes
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.shapes import (
    FIXTURES,
    LLAMA_8B,
    generator_tree,
    headers,
    plan_text,
)

ANSWERS = json.loads((FIXTURES / "vllm_kv_cache" / "answers.json").read_text())
ALLOCATED = [row for row in ANSWERS["rows"] if "adapters" in row and "is_measured" not in row]


def _checkpoint(shape: str) -> Checkpoint:
    """Return the headers that a checkpoint of a recorded shape would have."""
    return headers({"vocab_size": 128_256, **ANSWERS["shapes"][shape]})


@pytest.mark.parametrize(
    "row", ALLOCATED, ids=lambda row: f"{row['shape']}-{row['tensor_parallel']}"
)
def test_adapters_take_what_vllm_allocates(row):
    adapters = row["adapters"]
    found = adapter_bytes(
        _checkpoint(row["shape"]),
        adapters["max_loras"],
        adapters["max_lora_rank"],
        row["tensor_parallel"],
    )
    assert found == row["adapter_bytes"]


def test_ranks_are_those_that_vllm_takes():
    assert [engine_rank([rank]) for rank in (1, 2, 12, 16, 300, 512)] == [1, 8, 16, 16, 320, 512]
    assert engine_rank([8, 40, 9]) == 64 and ENGINE_RANKS[-1] == 512


GPTQ, AWQ = {"quant_method": "gptq"}, {"quant_method": "awq", "bits": 4}
AUTO_ROUND = {"quant_method": "auto-round", "packing_format": "auto_round:auto_awq", "bits": 4}


@pytest.mark.parametrize("tensor_parallel", [1, 4])
@pytest.mark.parametrize(
    ("quantization", "parts"),
    [
        (GPTQ, lambda rows, columns: {
            "qweight": ("I32", columns // 8, rows), "qzeros": ("I32", columns // 128, rows // 8),
            "scales": ("F16", columns // 128, rows)}),
        (GPTQ | {"bits": 8}, lambda rows, columns: {"qweight": ("I32", columns // 4, rows)}),
        (AWQ, lambda rows, columns: {
            "qweight": ("I32", columns, rows // 8), "scales": ("F16", columns // 128, rows)}),
        (AUTO_ROUND, lambda rows, columns: {"qweight": ("I32", columns, rows // 8)}),
        ({"quant_method": "compressed-tensors"}, lambda rows, columns: {
            "weight": ("F8_E4M3", rows, columns), "weight_scale": ("BF16", rows, 1)}),
        ({"quant_method": "modelopt"}, lambda rows, columns: {
            "weight": ("U8", rows, columns // 2),
            "weight_scale": ("F8_E4M3", rows, columns // 16)}),
    ],
    ids=["gptq", "gptq-8", "awq", "auto-round-awq", "fp8", "nvfp4"],
)  # fmt: skip
def test_quantized_layers_take_adapters_of_their_own_sizes(quantization, parts, tensor_parallel):
    packed = {}
    for name, tensor in LLAMA_8B.tensors.items():
        if ".layers." in name and len(tensor.shape) == 2:
            for part, (dtype, *shape) in parts(*tensor.shape).items():
                own = f"{name.removesuffix('.weight')}.{part}"
                packed[own] = TensorHeader(dtype=dtype, shape=tuple(shape))
        else:
            packed[name] = tensor
    config = {**LLAMA_8B.config, "quantization_config": quantization}
    found = adapter_bytes(Checkpoint(config=config, tensors=packed), 1, 16, tensor_parallel)
    assert found == adapter_bytes(LLAMA_8B, 1, 16, tensor_parallel)


HIDDEN, WIDE, EXPERTS = 2880, 1440, 32
ALONE = {
    f"{expert}.{name}.weight": ("BF16", *shape)
    for expert in range(EXPERTS)
    for name, shape in {
        "gate_proj": (WIDE, HIDDEN), "up_proj": (WIDE, HIDDEN), "down_proj": (HIDDEN, WIDE),
    }.items()
}  # fmt: skip
TURNED = {
    "gate_up_proj": ("BF16", EXPERTS, HIDDEN, 2 * WIDE),
    "down_proj": ("BF16", EXPERTS, WIDE, HIDDEN),
}
MXFP4 = {
    "gate_up_proj_blocks": ("U8", EXPERTS, 2 * WIDE, HIDDEN // 32, 16),
    "gate_up_proj_scales": ("U8", EXPERTS, 2 * WIDE, HIDDEN // 32),
    "gate_up_proj_bias": ("BF16", EXPERTS, 2 * WIDE),
    "down_proj_blocks": ("U8", EXPERTS, HIDDEN, WIDE // 32, 16),
    "down_proj_scales": ("U8", EXPERTS, HIDDEN, WIDE // 32),
    "down_proj_bias": ("BF16", EXPERTS, HIDDEN),
}


@pytest.mark.parametrize(
    ("tensors", "kind", "matrices_a"),
    [
        (ALONE, "qwen3_moe", 2),
        (TURNED, "llama4_text", 2),
        (TURNED, "gpt_oss", 1),
        (MXFP4, "gpt_oss", 1),
    ],
    ids=["one-by-one", "llama4", "gpt-oss-in-bf16", "gpt-oss-in-mxfp4"],
)
@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_each_expert_of_a_tensor_has_an_adapter(tensors, kind, matrices_a, tensor_parallel):
    prefix = "model.layers.0.mlp.experts"
    headers = {
        f"{prefix}.{name}": TensorHeader(dtype=dtype, shape=tuple(shape))
        for name, (dtype, *shape) in tensors.items()
    }
    config = {"model_type": kind, "hidden_size": HIDDEN, "num_attention_heads": 64}
    with_ones = adapter_bytes(Checkpoint(config=config, tensors=headers), 2, 16, tensor_parallel)
    without = adapter_bytes(Checkpoint(config=config, tensors={}), 2, 16, tensor_parallel)
    # vLLM's w13_lora_a, w13_lora_b, w2_lora_a and w2_lora_b of lora/layers/fused_moe.py.
    wide = WIDE // tensor_parallel
    numbers = EXPERTS * (matrices_a * HIDDEN + 2 * wide + wide + HIDDEN)
    assert with_ones - without == 2 * 16 * numbers * 2


def test_a_file_with_adapters_is_planned_with_them(tmp_path):
    serving = {
        "adapters": [{"name": "fr", "source": "adapters/faq"}],
        "speculative": {"method": "ngram", "tokens": 4},
    }
    tree = read_tree(generator_tree(tmp_path, plan_text({"serving": serving})))
    assert not tree.faults, list(map(str, tree.faults))
    (plan,) = generation_plans(tree, "cloud")
    assert plan.chosen.adapters_gib == pytest.approx(2_886_144 * 16 * 2 / GIB)
    assert any("speculative decoding cost or save" in note for note in plan.notes)
