"""LoRA adapters are read without their numbers, and refused where vLLM would not serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onboarding.text_generation.adapter import adapter_problem, read_adapter
from onboarding.text_generation.checkpoint import CheckpointError
from tests.unit.onboarding.text_generation.shapes import LLAMA_8B, SMOLLM, adapter_files, llama
from tests.unit.onboarding.text_generation.test_checkpoint import safetensors


def write(folder: Path, **options: Any) -> Path:
    """Write an adapter of one module."""
    for name, content in adapter_files("adapter", **options).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "adapter"


def test_an_adapter_says_its_rank_its_base_and_its_modules(tmp_path):
    found = read_adapter(write(tmp_path, rank=12, base_model_name_or_path="acme/chat"))
    assert (found.rank, found.base_model) == (12, "acme/chat")
    assert found.modules == {"model.layers.0.self_attn.q_proj": ((12, 4096), (4096, 12))}
    assert adapter_problem(found, LLAMA_8B) is None
    assert "for 4096 inputs and 4096 outputs" in (adapter_problem(found, SMOLLM) or "")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"r": 0}, "no r of 1 or more"),
        ({"r": True}, "no r of 1 or more"),
        ({"lora_alpha": None}, "no lora_alpha"),
        ({"peft_type": "IA3"}, "no LoRA adapter"),
        ({"bias": "all"}, "trains biases"),
        ({"modules_to_save": ["lm_head"]}, "replaces whole modules"),
        ({"rank_pattern": {"q_proj": 4}}, "scales all by one"),
        ({"alpha_pattern": {"q_proj": 4}}, "scales all by one"),
        ({"use_dora": True}, "DoRA"),
    ],
)
def test_refuses_what_vllm_does_not_serve(change, says, tmp_path):
    with pytest.raises(CheckpointError, match=says):
        read_adapter(write(tmp_path, **change))


@pytest.mark.parametrize(
    ("tensors", "says"),
    [
        ({}, "holds no tensor"),
        ({"model.layers.0.self_attn.q_proj.weight": [8, 8]}, "no matrix of a LoRA adapter"),
        ({"q_proj.lora_A.weight": [8, 4]}, "no pair of matrices"),
        (
            {"q_proj.lora_A.weight": [8, 4], "q_proj.lora_B.weight": [4, 6]},
            "of one rank for q_proj",
        ),
        ({"q_proj.lora_A.weight": [8], "q_proj.lora_B.weight": [8]}, "no matrix"),
    ],
)
def test_refuses_tensors_that_are_no_adapter(tensors, says, tmp_path):
    folder = write(tmp_path)
    content = safetensors({name: ("BF16", shape) for name, shape in tensors.items()})
    (folder / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError, match=says):
        read_adapter(folder)


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_refuses_files_that_are_damaged(content, tmp_path):
    folder = write(tmp_path)
    (folder / "adapter_config.json").write_bytes(content)
    with pytest.raises(CheckpointError):
        read_adapter(folder)
    folder = write(tmp_path / "other")
    (folder / "adapter_model.safetensors").write_bytes(content)
    with pytest.raises(CheckpointError):
        read_adapter(folder)


def test_embeddings_and_a_tied_output_layer_are_modules_of_the_base(tmp_path):
    tied = llama(64, 1, 4, 2, 128, tie_word_embeddings=True)
    tensors = {name: item for name, item in tied.tensors.items() if "lm_head" not in name}
    words = tied.config["vocab_size"]
    header = {
        "base_model.model.model.embed_tokens.lora_embedding_A": [4, words],
        "base_model.model.model.embed_tokens.lora_embedding_B": [64, 4],
        "base_model.model.lm_head.lora_A.weight": [4, 64],
        "base_model.model.lm_head.lora_B.weight": [words, 4],
        "base_model.model.model.embed_tokens.base_layer.weight": [words, 64],
    }
    folder = write(tmp_path)
    content = safetensors({name: ("F32", shape) for name, shape in header.items()})
    (folder / "adapter_model.safetensors").write_bytes(content)
    found = read_adapter(folder)
    assert adapter_problem(found, type(tied)(config=tied.config, tensors=tensors)) is None
    for kind, part in (("mistral", "embed_tokens"), ("cohere", "lm_head"), ("opt", "embed_tokens")):
        other = type(tied)(config={**tied.config, "model_type": kind}, tensors=tensors)
        problem = adapter_problem(found, other) or ""
        assert f"{part}, to which vLLM takes no adapter in a {kind}" in problem
    llama_kind = type(tied)(config={**tied.config, "model_type": "llama"}, tensors=tensors)
    assert adapter_problem(found, llama_kind) is None


def test_packed_weights_have_the_module_and_no_sizes(tmp_path):
    document = json.loads(LLAMA_8B.document())
    name = "model.layers.0.self_attn.q_proj"
    tensors = {key: item for key, item in LLAMA_8B.tensors.items() if not key.startswith(name)}
    tensors |= {f"{name}.{part}": item for part, item in zip(
        ("qweight", "scales"), LLAMA_8B.tensors.values(), strict=False)}  # fmt: skip
    packed = type(LLAMA_8B)(config=document["config"], tensors=tensors)
    assert adapter_problem(read_adapter(write(tmp_path)), packed) is None
