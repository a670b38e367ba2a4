"""The planner's tokens are those that vLLM logged, on a CPU exactly and on an H200 within 2 %."""

from __future__ import annotations

import json

import pytest

from onboarding.text_generation.gpu_memory import GIB, gpu_memory, mlp_width
from onboarding.text_generation.kv_cache import (
    ArchitectureError,
    bytes_read,
    cache_layers,
    cache_size,
)
from onboarding.text_generation.planner import CONCURRENT_STEPS
from onboarding.text_generation.platforms import gpus, schemes
from onboarding.text_generation.weights import count_weights
from tests.unit.onboarding.text_generation.shapes import FIXTURES, headers

ANSWERS = json.loads((FIXTURES / "vllm_kv_cache" / "answers.json").read_text())
EVERY = ANSWERS["rows"]
ROWS = [row for row in EVERY if "adapters" not in row and "is_measured" not in row]
H200 = json.loads((FIXTURES / "vllm_kv_cache" / "h200.json").read_text())
H200_SHAPES = json.loads((FIXTURES / "vllm_kv_cache" / "h200_shapes.json").read_text())


def _name(row):
    return f"{row['shape']}-tp{row.get('tensor_parallel')}-{row['kv']}"


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_tokens_are_those_of_vllms_log(row):
    assert "tokens" in row, "vLLM refused this case"
    size = cache_size(
        cache_layers(ANSWERS["shapes"][row["shape"]]),
        ANSWERS["kv_cache_gib"] * GIB,
        length=ANSWERS["max_model_len"],
        tensor_parallel=row["tensor_parallel"],
        dtype_bytes=1 if row["kv"] == "fp8" else 2,
        block_tokens=row["block_size"],
        step_tokens=row["max_in_flight_tokens"],
    )
    assert size.tokens == row["tokens"]


@pytest.mark.parametrize("row", H200["rows"], ids=_name)
def test_tokens_are_within_two_percent_of_an_h200s(row):
    checkpoint = headers(H200_SHAPES[row["shape"]])
    weights = count_weights(checkpoint, schemes()[row["scheme"]], row["tensor_parallel"])
    numbers = 8192 * mlp_width(checkpoint.config) / row["tensor_parallel"]
    memory = gpu_memory(weights, gpus()["H200"], H200["engine_version"], 0.92, numbers)
    assert memory is not None and memory.is_measured
    size = cache_size(
        cache_layers(checkpoint.config),
        memory.cache_bytes,
        length=row.get("max_model_len", 8192),
        tensor_parallel=row["tensor_parallel"],
        dtype_bytes=1 if row["kv"] == "fp8" else 2,
        step_tokens=CONCURRENT_STEPS * 8192,
    )
    assert size.tokens == pytest.approx(row["tokens"], rel=0.02)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096,
          "num_key_value_heads": 8}, 131_072),
        ({"num_hidden_layers": 80, "num_attention_heads": 64, "hidden_size": 8192,
          "num_key_value_heads": 8}, 327_680),
        ({"num_hidden_layers": 64, "num_attention_heads": 64, "head_dim": 128,
          "num_key_value_heads": 8}, 262_144),
        ({"num_hidden_layers": 61, "num_attention_heads": 128, "kv_lora_rank": 512,
          "qk_rope_head_dim": 64}, 70_272),
        ({"n_layer": 12, "n_head": 12, "n_embd": 768}, 36_864),
        ({"num_hidden_layers": 32, "num_attention_heads": 71, "hidden_size": 4544,
          "multi_query": True}, 8_192),
    ],
    ids=["llama-8b", "llama-70b", "qwen3-32b", "deepseek-v3", "gpt2", "falcon-7b"],
)  # fmt: skip
def test_bytes_of_a_token(config, expected):
    assert bytes_read(cache_layers(config), 1, 2, 1) == expected
    assert bytes_read(cache_layers(config), 1, 1, 1) == expected // 2


def test_windows_are_those_of_the_layers():
    common = {"num_hidden_layers": 6, "num_attention_heads": 4, "hidden_size": 64}
    kinds = ["sliding_attention", "full_attention"] * 3
    for given in ({"layer_types": kinds}, {"sliding_window_pattern": 2}):
        layers = cache_layers({**common, **given, "sliding_window": 8})
        assert [(item.count, item.window) for item in layers] == [(3, None), (3, 8)]
    every = cache_layers({**common, "sliding_window": 8})
    assert [(item.count, item.window) for item in every] == [(6, 8)]
    unused = cache_layers({**common, "sliding_window": 8, "use_sliding_window": False})
    assert [(item.count, item.window) for item in unused] == [(6, None)]


@pytest.mark.parametrize(
    ("config", "says"),
    [
        ({"num_hidden_layers": 2}, "num_attention_heads"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8,
          "layer_types": ["linear_attention", "full_attention"]}, "linear_attention"),
        ({"num_hidden_layers": 2, "num_attention_heads": 2, "hidden_size": 8,
          "layer_types": ["full_attention"]}, "1 entries for 2 layers"),
        ({"num_hidden_layers": True, "num_attention_heads": 2}, "num_hidden_layers"),
    ],
    ids=["no-heads", "mamba", "linear", "entries", "no-number"],
)  # fmt: skip
def test_refuses_a_state_that_is_not_counted(config, says):
    with pytest.raises(ArchitectureError, match=says):
        cache_layers(config)


def test_width_of_an_mlp_is_that_of_the_widest_layer_and_of_all_experts():
    assert mlp_width({"hidden_size": 4}) == 16 and mlp_width({"intermediate_size": [8, 9]}) == 9
    assert mlp_width({"intermediate_size": 8, "num_experts_per_tok": 4}) == 32
