"""A small random Llama with a byte-level BPE tokenizer and a chat template: 6 MB, made in a second.

`python -m tests.text_generation.tiny_llama FOLDER [LAYERS]` writes one. Needs numpy only, so that
every environment can make it; a seed gives the same bytes everywhere.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np

TEXTS = Path(__file__).resolve().parents[2] / "onboarding/data/texts/calibration.txt"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
"""Tokens 0, 1 and 2: beginning of a text and padding, begin and end of a message."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_SIZE, INTERMEDIATE, VOCABULARY = 256, 4, 8, 4, 32, 512, 1024
POSITIONS = 2048
OUTLIER = 12.0
"""Factor of two channels of every norm, as trained models have them."""


def write_tiny_llama(
    folder: Path, *, seed: int = 0, layers: int = LAYERS, shards: int = 1, dtype: str = "bfloat16"
) -> Path:
    """Write a checkpoint that transformers and vLLM load, and return its folder.

    `shards`: files of weights; above 1 with an index. `dtype`: bfloat16 or float32.
    """
    folder.mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder)
    _write_json(folder / "config.json", _config(layers, dtype))
    generation = {"bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0, "do_sample": False}
    _write_json(folder / "generation_config.json", generation)
    tensors = _tensors(np.random.default_rng(seed), layers)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    places: dict[str, str] = {}
    names = list(tensors)
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = {name: tensors[name] for name in names[shard::shards]}
        write_safetensors(folder / file, part, dtype)
        places |= dict.fromkeys(part, file)
    size = sum((folder / file).stat().st_size for file in set(places.values()))
    index = {"metadata": {"total_size": size}, "weight_map": dict(sorted(places.items()))}
    _write_json(folder / "model.safetensors.index.json", index)
    return folder


def write_tokenizer(folder: Path, *, chat_template: str | None = CHAT_TEMPLATE) -> None:
    """Write tokenizer.json and tokenizer_config.json of `VOCABULARY` tokens."""
    vocabulary, merges = _byte_pairs(VOCABULARY - len(SPECIAL))
    tokens = {token: number for number, token in enumerate((*SPECIAL, *vocabulary))}
    special = [
        {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for number, token in enumerate(SPECIAL)
    ]  # fmt: skip
    byte_level = {
        "type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True,
    }  # fmt: skip
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
        "normalizer": None, "pre_tokenizer": byte_level, "post_processor": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            "ignore_merges": False, "vocab": tokens, "merges": [list(pair) for pair in merges],
        },
    }  # fmt: skip
    _write_json(folder / "tokenizer.json", tokenizer)
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": POSITIONS,
        "bos_token": SPECIAL[0], "pad_token": SPECIAL[0], "eos_token": SPECIAL[2],
        "additional_special_tokens": [SPECIAL[1]], "clean_up_tokenization_spaces": False,
    }  # fmt: skip
    if chat_template is not None:
        configuration["chat_template"] = chat_template
    _write_json(folder / "tokenizer_config.json", configuration)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str = "bfloat16") -> None:
    """Write float32 arrays as a safetensors file of BF16, rounded to the nearest, or F32."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    blocks, place = [], 0
    for name, tensor in tensors.items():
        block = _bfloat16(tensor) if dtype == "bfloat16" else tensor.astype("<f4").tobytes()
        kind = "BF16" if dtype == "bfloat16" else "F32"
        offsets = [place, place + len(block)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": offsets}
        blocks.append(block)
        place += len(block)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blocks))


def _bfloat16(tensor: np.ndarray) -> bytes:
    bits = np.ascontiguousarray(tensor, "<f4").view("<u4")
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded >> 16).astype("<u2").tobytes()


def _config(layers: int, dtype: str) -> dict[str, object]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "dtype": dtype,
        "torch_dtype": dtype, "hidden_size": HIDDEN, "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers, "num_attention_heads": HEADS, "head_dim": HEAD_SIZE,
        "num_key_value_heads": KV_HEADS, "vocab_size": VOCABULARY, "hidden_act": "silu",
        "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
        "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0,
    }  # fmt: skip


def _tensors(random: np.random.Generator, layers: int) -> dict[str, np.ndarray]:
    """Return weights whose activations keep their size from layer to layer."""

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        return random.normal(0, gain / np.sqrt(columns), (rows, columns)).astype(np.float32)

    def norm() -> np.ndarray:
        scale = random.uniform(0.5, 1.5, HIDDEN).astype(np.float32)
        scale[[7, HIDDEN - 9]] = OUTLIER
        return scale

    tensors = {"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN, 4.0)}
    for layer in range(layers):
        attention, feed = f"model.layers.{layer}.self_attn", f"model.layers.{layer}.mlp"
        tensors |= {
            f"model.layers.{layer}.input_layernorm.weight": norm(),
            f"{attention}.q_proj.weight": matrix(HEADS * HEAD_SIZE, HIDDEN),
            f"{attention}.k_proj.weight": matrix(KV_HEADS * HEAD_SIZE, HIDDEN),
            f"{attention}.v_proj.weight": matrix(KV_HEADS * HEAD_SIZE, HIDDEN),
            f"{attention}.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_SIZE, 0.5),
            f"model.layers.{layer}.post_attention_layernorm.weight": norm(),
            f"{feed}.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{feed}.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{feed}.down_proj.weight": matrix(HIDDEN, INTERMEDIATE, 0.5),
        }
    return tensors | {
        "model.norm.weight": np.ones(HIDDEN, np.float32),
        "lm_head.weight": matrix(VOCABULARY, HIDDEN, 4.0),
    }


@cache
def _byte_pairs(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Return a vocabulary of so many tokens and its merges, learnt from this repository's texts."""
    letters = _byte_letters()
    text = TEXTS.read_text(encoding="utf-8")
    words = Counter(
        tuple(letters[byte] for byte in (" " * (place > 0) + word).encode())
        for line in text.splitlines()
        for place, word in enumerate(line.split(" "))
        if word
    )
    vocabulary, merges = list(letters.values()), []
    while len(vocabulary) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        merges.append(best)
        if (token := "".join(best)) not in vocabulary:
            vocabulary.append(token)
        words = Counter({_merge(word, best): count for word, count in words.items()})
    return vocabulary, merges


def _merge(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    merged: list[str] = []
    for letter in word:
        if merged and (merged[-1], letter) == pair:
            merged[-1] += letter
        else:
            merged.append(letter)
    return tuple(merged)


def _byte_letters() -> dict[int, str]:
    """Return the printable letter of each byte, as GPT-2's tokenizer has them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = (byte for byte in range(256) if byte not in printable)
    letters = {byte: chr(byte) for byte in printable}
    letters |= {byte: chr(256 + place) for place, byte in enumerate(others)}
    return dict(sorted(letters.items()))


def _write_json(path: Path, document: object) -> None:
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")


if __name__ == "__main__":
    count = int(sys.argv[2]) if len(sys.argv) > 2 else LAYERS
    print(write_tiny_llama(Path(sys.argv[1]), layers=count))
