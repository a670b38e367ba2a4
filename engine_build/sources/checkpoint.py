"""The files of a checkpoint folder: its JSON, and the tokenizer checked against the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from engine_build.datasets.tokenizer import NAME, read_tokenizer, save_padded
from engine_build.errors import SourceFault

ADDED = ("cls_token", "sep_token")
"""Tokens that every text gets, where tokenizer_config.json names them."""


class TokenizerFile:
    """tokenizer.json of a checkpoint. Raises SourceFault when it is not the model's."""

    def __init__(self, folder: Path, *, vocabulary: int, padding: int | None) -> None:
        self.path = folder / NAME
        if not self.path.is_file():
            raise SourceFault(
                f"the checkpoint has no {NAME}; save it with a fast tokenizer of transformers."
            )
        self._tokenizer = read_tokenizer(self.path)
        self._padding = padding
        refuse_other_vocabulary(self._tokenizer, vocabulary)
        _refuse_other_padding(self._tokenizer, padding)
        _refuse_missing_tokens(self._tokenizer, read_json(folder / "tokenizer_config.json", {}))

    def save(self, folder: Path) -> Path:
        """Writes the file that engines are served with.

        Every reader of it pads with the same token.
        """
        return save_padded(self._tokenizer, folder, self._padding)


def refuse_other_vocabulary(tokenizer: Tokenizer, vocabulary: int) -> None:
    """A token that the model has no row for is undefined behaviour on a GPU."""
    token, largest = max(
        tokenizer.get_vocab(with_added_tokens=True).items(), key=lambda pair: pair[1]
    )
    if largest >= vocabulary:
        raise SourceFault(
            f"the tokenizer gives token {largest} ({token!r}), but the model knows {vocabulary}; "
            f"they are not a pair: name a checkpoint whose {NAME} was saved with its weights."
        )


def _refuse_other_padding(tokenizer: Tokenizer, token: int | None) -> None:
    if token is None:
        return
    known = tokenizer.padding
    if known is not None and known["pad_id"] != token:
        raise SourceFault(
            f"the tokenizer pads with token {known['pad_id']} ({known['pad_token']!r}), but the "
            f"model's padding is {token}; they are not a pair: save {NAME} again with the model's "
            "own padding token."
        )
    if tokenizer.id_to_token(token) is None:
        raise SourceFault(
            f"the model pads with token {token}, which the tokenizer does not have; they are not a "
            "pair."
        )


def _refuse_missing_tokens(tokenizer: Tokenizer, config: dict[str, Any]) -> None:
    added = tokenizer.encode("a").tokens
    for name in ADDED:
        value = config.get(name)
        token = value.get("content") if isinstance(value, dict) else value
        if token is not None and token not in added:
            raise SourceFault(
                f"tokenizer_config.json names {name} {token!r}, but {NAME} does not add it to a "
                "text; save the fast tokenizer again, with its post-processor."
            )


def configuration(folder: Path) -> dict[str, Any]:
    """config.json; empty when there is none."""
    config: dict[str, Any] = read_json(folder / "config.json", {})
    return config


def class_names(config: dict[str, Any]) -> tuple[str, ...] | None:
    """Class names in the order of the logits; None when the configuration has none."""
    names = config.get("id2label")
    if not isinstance(names, dict):
        return None
    missing = [index for index in range(len(names)) if str(index) not in names]
    if missing:
        raise SourceFault(
            f"config.json names {len(names)} classes, but not class {missing[0]}; number them from "
            "0."
        )
    return tuple(str(names[str(index)]) for index in range(len(names)))


def read_json(path: Path, default: Any) -> Any:
    """A file's content, of the default's kind, or the default where there is no file.

    Raises SourceFault.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
    except (ValueError, RecursionError) as error:
        raise SourceFault(
            f"{path.name} of the checkpoint is no JSON ({error}); fetch or save it again."
        ) from error
    if not isinstance(found, type(default)):
        wanted = "an object" if isinstance(default, dict) else "a list"
        raise SourceFault(
            f"{path.name} of the checkpoint holds {type(found).__name__}, not {wanted}; fetch or "
            "save it again."
        )
    return found
