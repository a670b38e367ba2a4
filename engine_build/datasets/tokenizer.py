"""tokenizer.json: read, and its padding made explicit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine_build.errors import SourceFault

NAME = "tokenizer.json"
PADDING = ("[PAD]", "<pad>", "<|pad|>")
"""What padding tokens are called where nothing else says so."""


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer of the `tokenizers` library. Raises SourceFault."""
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:
        raise SourceFault(
            f"{path.name} cannot be read ({error}); the source must bring a fast tokenizer's file."
        ) from error


def padding(tokenizer: Tokenizer, token: int | None = None) -> dict[str, Any]:
    """What rows of a batch are filled with: pad_id, pad_token, pad_type_id.

    `token` is what the model says it is.
    """
    known = tokenizer.padding
    if known is not None:
        return {name: known[name] for name in ("pad_id", "pad_token", "pad_type_id")}
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    found = (
        next((vocabulary[name] for name in PADDING if name in vocabulary), None)
        if token is None
        else token
    )
    if found is None:
        raise SourceFault(
            "the tokenizer has no padding token, which batches need; add one of "
            f"{', '.join(PADDING)} to it."
        )
    return {"pad_id": found, "pad_token": tokenizer.id_to_token(found), "pad_type_id": 0}


def save_padded(tokenizer: Tokenizer, folder: Path, token: int | None = None) -> Path:
    """Write a tokenizer that pads the rows of a batch to the longest.

    Every reader of the file pads with the same token.
    """
    tokenizer.enable_padding(**padding(tokenizer, token))
    path = folder / NAME
    tokenizer.save(str(path), pretty=False)
    return path
