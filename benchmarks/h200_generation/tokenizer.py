"""A byte-level BPE tokenizer of any vocabulary size, computed, so that no file is carried.

Its words are combinations of letters. It has the speed and the format of a trained one: vLLM reads
it, detokenizes every word of the vocabulary, and encodes text.
"""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Iterator
from pathlib import Path

SPECIAL = ("<unk>", "<s>", "</s>")
SPACE = "\u0120"
"""A space, as byte-level BPE writes it."""
TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
)


def byte_characters() -> list[str]:
    """Return the 256 characters that byte-level BPE writes for bytes.

    Printable bytes are their own characters, the others those from U+0100 on.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = itertools.count(0x100)
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def merges(count: int) -> list[tuple[str, str]]:
    """Return so many pairs of words that are merged, the first ones first. Raises ValueError."""
    found: dict[str, tuple[str, str]] = {}
    for left, right in _pairs():
        if len(found) == count:
            break
        found.setdefault(left + right, (left, right))
    if len(found) < count:
        raise ValueError(f"{count} merges were wanted; there are {len(found)}")
    return list(found.values())


def _pairs() -> Iterator[tuple[str, str]]:
    letters = string.ascii_lowercase
    twos = ["".join(pair) for pair in itertools.product(letters, repeat=2)]
    yield from itertools.product(letters, letters)
    yield from ((SPACE, letter) for letter in letters)
    yield from ((SPACE + letter, two) for letter, two in itertools.product(letters, twos))
    yield from itertools.product(twos, letters)
    yield from itertools.product(twos, twos)


def write_tokenizer(folder: Path, size: int) -> None:
    """Write tokenizer.json and tokenizer_config.json of a vocabulary of `size` words."""
    characters = byte_characters()
    pairs = merges(size - len(SPECIAL) - len(characters))
    words = [*SPECIAL, *characters, *(left + right for left, right in pairs)]
    level = {"add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    special = [
        {
            "id": number, "content": word, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": True,
        }
        for number, word in enumerate(SPECIAL)
    ]  # fmt: skip
    document = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": special,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", **level},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", **level},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {word: number for number, word in enumerate(words)},
            "merges": [list(pair) for pair in pairs],
        },
    }
    configuration = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 131_072,
    }
    for name, content in (("tokenizer.json", document), ("tokenizer_config.json", configuration)):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
