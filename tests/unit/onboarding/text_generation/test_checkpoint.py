"""Files of text generators: headers, adapters, texts and tasks, read without their tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from onboarding.checkpoint import checkpoint_sha256
from onboarding.text_generation.adapter import adapter_problem, read_adapter
from onboarding.text_generation.checkpoint import (
    CheckpointError,
)
from onboarding.text_generation.platforms import schemes
from onboarding.text_generation.texts import (
    LONGEST_LINE,
    TaskFileError,
    TextsError,
    read_task_file,
    read_texts,
    shared_line,
)
from onboarding.text_generation.weights import count_weights, is_linear
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.shapes import (
    FIXTURES,
    LLAMA_8B,
    SMOLLM,
    adapter_files,
    generator_tree,
    llama,
)

BASE = (FIXTURES / "text_generation" / "base.yaml").read_text()
CONFIG = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
TENSORS = {
    "model.embed_tokens.weight": ("BF16", [64, 4]),
    "model.layers.0.mlp.up_proj.weight": ("BF16", [8, 4]),
}


def safetensors(tensors: dict[str, tuple[str, list[int]]]) -> bytes:
    """Return a file's beginning: the length and the header."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]}
        for name, (dtype, shape) in tensors.items()
    }
    text = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    return len(text).to_bytes(8, "little") + text


def checkpoint(folder: Path) -> Path:
    """Write a checkpoint of two shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    names = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    places = dict(zip(TENSORS, names, strict=True))
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    for tensor, name in places.items():
        (folder / name).write_bytes(safetensors({tensor: TENSORS[tensor]}))
    return folder


def messages_of(tmp_path: Path, break_it, source: str = "") -> list[str]:
    text = BASE.replace(
        "  huggingface: acme/chat@0123456789abcdef0123456789abcdef01234567\n"
        "  headers: models/data/8b.json\n",
        source or "  checkpoint: models/data/own\n  sha256: DIGEST\n",
    )
    root = generator_tree(tmp_path, text)
    folder = checkpoint(root / "models/data/own")
    digest = checkpoint_sha256(folder)
    file = root / "models/chat.yaml"
    file.write_text(file.read_text().replace("DIGEST", digest))
    break_it(folder)
    faults = [fault for fault in read_tree(root).faults if fault.file == "models/chat.yaml"]
    assert all(fault.line for fault in faults)
    return list(map(str, faults))


def _write_config(folder: Path, **changes: int) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: (f / "model-00002-of-00002.safetensors").unlink(), "is missing, which"),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(
            safetensors({"other": ("BF16", [1])})), "has no tensor"),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(b"torch"), "begin as"),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(
            b"\x05" + bytes(7) + b"{..}"), "has no header of safetensors"),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(
            safetensors({"model.layers.0.mlp.up_proj.weight": ("F2", [8, 4])})), "of type F2"),
        (lambda f: (f / "model.safetensors.index.json").write_text("{}"), "is no index"),
        (lambda f: (f / "model.safetensors.index.json").write_text(
            '{"weight_map": {"a": "../b"}}'), "is no index"),
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is no JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "no JSON object"),
        (lambda f: _write_config(f, hidden_size=8), "disagree: config.json has hidden_size 8"),
        (lambda f: _write_config(f, num_hidden_layers=3), "disagree: config.json has num_hidden"),
        (lambda f: (f / "notes.txt").write_text("x"), "is not the checkpoint's digest"),
        (lambda f: _write_config(f, num_attention_heads=0), "KV cache cannot be counted"),
    ],
)  # fmt: skip
def test_refuses_a_checkpoint_that_is_not_whole(break_it, says, tmp_path):
    assert any(says in message for message in messages_of(tmp_path, break_it))


def test_eight_bits_halve_linear_layers_alone():
    full, half = (count_weights(LLAMA_8B, schemes()[name], 1) for name in ("bf16", "fp8"))
    linear = sum(t.bytes for n, t in LLAMA_8B.tensors.items() if is_linear(n, t))
    assert full.gpu_bytes == LLAMA_8B.bytes
    assert half.gpu_bytes == pytest.approx(full.gpu_bytes - linear * (1 - 8.01 / 16))


def test_keys_and_values_are_copied_where_heads_are_few():
    few = llama(4096, 1, 32, 2, 14_336)
    four, one = (count_weights(few, schemes()["bf16"], size).gpu_bytes for size in (4, 1))
    replicated = 2 * (2 * 128) * 4096 * 2 + 3 * 4096 * 2
    assert four == pytest.approx((one - replicated) / 4 + replicated - 2 * 2 * 128 * 4096 * 2 / 2)


def test_output_layer_is_counted_once_where_it_is_the_embedding():
    tied = llama(4096, 1, 32, 8, 14_336, tie_word_embeddings=True)
    whole = count_weights(llama(4096, 1, 32, 8, 14_336), schemes()["bf16"], 1).gpu_bytes
    rows = 128_256 * 4096 * 2
    assert count_weights(tied, schemes()["bf16"], 1).gpu_bytes == whole - rows


def write_adapter(folder: Path, **options: Any) -> Path:
    """Write an adapter of one module."""
    for name, content in adapter_files("adapter", **options).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "adapter"


def test_an_adapter_says_its_rank_its_base_and_its_modules(tmp_path):
    found = read_adapter(write_adapter(tmp_path, rank=12, base_model_name_or_path="acme/chat"))
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
        read_adapter(write_adapter(tmp_path, **change))


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
    folder = write_adapter(tmp_path)
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


pytestmark = pytest.mark.unit

MESSAGES = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "there"}]


def write_lines(folder, name, *lines):
    path = folder / name
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.csv", b"a", "is no dataset of texts: a.csv; name a file that ends in .jsonl, .txt"),
        ("a.jsonl", b'{"prompt": "a"}', "line 1 has neither text nor messages; write"),
        ("a.jsonl", b'{"messages": [{"role": "user"}]}', "line 1 has neither text nor messages"),
        ("a.jsonl", b"[1]", "line 1 has neither text nor messages"),
        ("a.txt", b"ok\n\xff\xfe\n", "line 2 is not UTF-8 text; save the file as UTF-8"),
        ("a.txt", b"x" * (LONGEST_LINE + 1), "line 1 is longer than"),
    ],
)
def test_refuses_a_line_in_one_sentence(tmp_path, name, content, says):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TextsError) as caught:
        list(read_texts(tmp_path / name))
    assert str(caught.value).startswith(says)


def test_shared_samples_are_found_whatever_their_case_and_roles(tmp_path):
    calibration = write_lines(tmp_path, "a.jsonl", json.dumps({"messages": MESSAGES}))
    held_out = write_lines(tmp_path, "b.txt", "another", "hello   THERE")
    assert shared_line(calibration, 10, held_out) == (2, 1)
    assert shared_line(calibration, 10, write_lines(tmp_path, "c.txt", "another")) is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("items: []", "is no task file (items: "),
        ("items: [{prompt: a}]", "is no task file (items.0.answers: "),
        ("items: [{prompt: a, answers: [1]}]", "is no task file (items.0.answers.0: "),
        ("a: b: c", "is no task file; write `items:`"),
    ],
)
def test_refuses_what_is_no_task_file(tmp_path, content, says):
    path = tmp_path / "task.yaml"
    path.write_text(content)
    with pytest.raises(TaskFileError) as caught:
        read_task_file(path)
    assert str(caught.value).startswith(says)
