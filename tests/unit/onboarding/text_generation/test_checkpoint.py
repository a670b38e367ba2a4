"""Headers of checkpoints: read without their tensors, and refused where a file is not whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from onboarding.checkpoint import checkpoint_sha256
from onboarding.text_generation.checkpoint import (
    CheckpointError,
    index_shards,
    parse_header,
    read_folder,
    read_headers_file,
)
from onboarding.text_generation.platforms import schemes
from onboarding.text_generation.weights import count_weights, is_linear, mismatches
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.shapes import (
    FIXTURES,
    LLAMA_8B,
    SHAPES,
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


def test_folder_gives_every_shards_tensors(tmp_path):
    found = read_folder(checkpoint(tmp_path))
    assert found.config == CONFIG and set(found.tensors) == set(TENSORS)
    assert found.bytes == (64 * 4 + 8 * 4) * 2


def test_headers_file_gives_the_same_back(tmp_path):
    (tmp_path / "h.json").write_text(LLAMA_8B.document())
    assert read_headers_file(tmp_path / "h.json") == LLAMA_8B
    assert LLAMA_8B.bytes == 16_060_522_496


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"config": {}, "tensors": {"a": [1]}}',
                                  '{"config": [], "tensors": {}}',
                                  '{"config": {}, "tensors": {"a": ["BF16", [-1]]}}'])  # fmt: skip
def test_refuses_a_file_that_holds_no_headers(text, tmp_path):
    (tmp_path / "h.json").write_text(text)
    with pytest.raises(CheckpointError, match="headers"):
        read_headers_file(tmp_path / "h.json")


def test_refuses_a_type_that_is_not_known():
    with pytest.raises(CheckpointError, match="type F2"):
        parse_header("m", safetensors({"a": ("F2", [1])}))


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 8, b"\xff" * 8, b"\x05" + b"\x00" * 7 + b"{..}"]
)
def test_refuses_a_beginning_that_is_no_header(content):
    with pytest.raises(CheckpointError):
        parse_header("m", content)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"weight_map": {"a": "../b"}}'])
def test_refuses_an_index_that_is_none(content):
    with pytest.raises(CheckpointError, match="index"):
        index_shards(content)


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


def test_whole_checkpoint_of_the_tree_is_accepted(tmp_path):
    assert messages_of(tmp_path, lambda folder: None) == []


def _write_config(folder: Path, **changes: int) -> None:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}))


@pytest.mark.parametrize(
    ("break_it", "says"),
    [
        (lambda f: (f / "model-00002-of-00002.safetensors").unlink(), "is missing, which"),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(
            safetensors({"other": ("BF16", [1])})), "has no tensor"),
        (lambda f: (f / "model-00002-of-00002.safetensors").write_bytes(b"torch"), "begin as"),
        (lambda f: (f / "config.json").unlink(), "has no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "config.json is no JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "no JSON object"),
        (lambda f: _write_config(f, hidden_size=8), "disagree: config.json has hidden_size 8"),
        (lambda f: _write_config(f, num_hidden_layers=3), "disagree: config.json has num_hidden"),
        (lambda f: (f / "notes.txt").write_text("x"), "is not the checkpoint's digest"),
        (lambda f: _write_config(f, num_attention_heads=0), "KV cache cannot be counted"),
    ],
    ids=["shard", "tensor", "torch", "config", "json", "object", "hidden", "layers", "digest",
         "heads"],
)  # fmt: skip
def test_refuses_a_checkpoint_that_is_not_whole(break_it, says, tmp_path):
    assert any(says in message for message in messages_of(tmp_path, break_it))


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("  checkpoint: s3://bucket/own\n  sha256: DIGEST\n", "end the prefix in /"),
        ("  checkpoint: models/data/none\n  sha256: DIGEST\n", "nor a folder under"),
        ("  checkpoint: models/data/own\n", "needs 'source.sha256'"),
        ("  checkpoint: models/data/own\n  sha256: abc\n", "is no SHA-256"),
        ("  checkpoint: models/data/own\n  sha256: DIGEST\n  path: ../x\n", "leaves the source"),
        ("  trust_remote_code: false\n", "names no source"),
    ],
    ids=["s3", "folder", "no-digest", "digest", "path", "nothing"],
)
def test_refuses_a_source_that_is_not_there(source, says, tmp_path):
    assert any(says in message for message in messages_of(tmp_path, lambda folder: None, source))


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


def test_formats_of_quantized_checkpoints_are_known():
    assert SHAPES["8b-fp8"].scheme == "fp8" and LLAMA_8B.scheme is None
    packed = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
    assert llama(64, 1, 2, 2, 64, quantization_config=packed).scheme == "gptq"


def test_shapes_of_tests_agree_with_themselves():
    assert mismatches(LLAMA_8B) is None and mismatches(SHAPES["torn"]) is not None
