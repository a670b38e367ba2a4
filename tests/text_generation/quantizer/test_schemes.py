"""Every number format of a tiny Llama by real llm-compressor: files, format, and its gate."""

from __future__ import annotations

import json

import pytest
from safetensors import safe_open

from onboarding.text_generation.checkpoint import read_folder
from tests.text_generation.quantizer.trees import llama_tree, record_of, run

LINEAR = "model.layers.1.mlp.down_proj"
FORMATS = {
    "fp8": ("float-quantized", f"{LINEAR}.weight", "F8_E4M3"),
    "int8": ("int-quantized", f"{LINEAR}.weight", "I8"),
    "awq": ("pack-quantized", f"{LINEAR}.weight_packed", "I32"),
    "gptq": ("pack-quantized", f"{LINEAR}.weight_packed", "I32"),
    "w4a8-fp8": ("pack-quantized", f"{LINEAR}.weight_packed", "I32"),
    "nvfp4": ("nvfp4-pack-quantized", f"{LINEAR}.weight_packed", "U8"),
    "mxfp4": ("mxfp4-pack-quantized", f"{LINEAR}.weight_packed", "U8"),
    "mxfp8": ("mxfp8-quantized", f"{LINEAR}.weight", "F8_E4M3"),
}


@pytest.mark.parametrize("scheme", FORMATS)
def test_scheme_is_compared_and_of_the_format_that_vllm_reads(scheme, tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=(scheme,))
    ended = run(root, tmp_path / "out")
    assert ended.code == 0, ended.log
    entry, folder = record_of(tmp_path / "out"), tmp_path / "out/checkpoint"
    name, tensor, dtype = FORMATS[scheme]
    config = json.loads((folder / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    assert {group["format"] for group in config["config_groups"].values()} == {name}
    checkpoint = read_folder(folder)
    assert checkpoint.tensors[tensor].dtype == dtype
    assert checkpoint.tensors["lm_head.weight"].dtype == "BF16", "the output layer stays"
    source = read_folder(root / "models/data/tiny")
    assert entry.weight_bytes == checkpoint.bytes < 0.75 * source.bytes
    assert entry.gate is not None and entry.gate.samples == 16
    assert 0 < entry.gate.kl_per_token.low <= entry.gate.kl_per_token.value
    assert entry.accepted == (entry.reason is None)
    names = {file.path for file in entry.files}
    assert {"tokenizer.json", "tokenizer_config.json", "generation_config.json"} <= names
    assert "recipe.yaml" not in names


def test_formats_of_more_bits_lie_nearer_to_the_source(tmp_path):
    found = {}
    for scheme in ("fp8", "int8", "nvfp4"):
        root = llama_tree(tmp_path / scheme, schemes=(scheme,))
        assert run(root, tmp_path / f"out-{scheme}").code == 0
        found[scheme] = record_of(tmp_path / f"out-{scheme}").gate.kl_per_token
    assert found["int8"].high < found["nvfp4"].low and found["fp8"].high < found["nvfp4"].low


def test_bf16_is_the_source_itself_and_is_not_compared(tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=("bf16",))
    assert run(root, tmp_path / "out").code == 0
    entry = record_of(tmp_path / "out")
    assert entry.gate is None and entry.accepted
    source = root / "models/data/tiny/model.safetensors"
    assert (tmp_path / "out/checkpoint/model.safetensors").read_bytes() == source.read_bytes()


def test_bf16_of_float32_is_cast_and_says_so_in_its_config(tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=("bf16",), dtype="float32", shards=3)
    assert run(root, tmp_path / "out").code == 0
    folder = tmp_path / "out/checkpoint"
    checkpoint = read_folder(folder)
    assert {tensor.dtype for tensor in checkpoint.tensors.values()} == {"BF16"}
    assert checkpoint.config["dtype"] == checkpoint.config["torch_dtype"] == "bfloat16"
    source = read_folder(root / "models/data/tiny")
    assert (
        checkpoint.bytes == source.bytes / 2 and checkpoint.tensors.keys() == source.tensors.keys()
    )
    assert not list(folder.glob("*index*"))


def test_fp8_kv_cache_has_scales_and_is_compared_on_its_own(tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=("fp8",), changes={"kv_cache": "fp8"})
    assert run(root, tmp_path / "out").code == 0
    gate = record_of(tmp_path / "out").gate
    with safe_open(tmp_path / "out/checkpoint/model.safetensors", framework="pt") as file:
        scales = [name for name in file.keys() if name.endswith(("k_scale", "v_scale"))]  # noqa: SIM118
    assert len(scales) == 2 * 4
    assert gate.kv is not None and 0 < gate.kv.kl_per_token.value < gate.kl_per_token.value


def test_fp8_kv_cache_of_bf16_weights_is_compared_with_scales_of_one(tmp_path):
    root = llama_tree(tmp_path / "tree", schemes=("bf16",), changes={"kv_cache": "fp8"})
    assert run(root, tmp_path / "out").code == 0
    gate = record_of(tmp_path / "out").gate
    assert gate is not None and gate.kl_per_token.high < 1e-4 and gate.top1.low > 0.99
    assert gate.kv is not None and gate.kv.kl_per_token.value > 1e-4
