"""Text datasets of a text generator: a text a line, or JSON lines with texts or chat messages.

Files are read line by line and never held whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

JSON_LINES, PLAIN = ".jsonl", ".txt"
KINDS = (JSON_LINES, PLAIN)
LONGEST_LINE = 4 << 20
"""Characters; a longer line is no sample of text."""
ALLOWED = '{"text": "..."} or {"messages": [{"role": "user", "content": "..."}]}'
ENOUGH_SAMPLES = 16
"""Fewer samples than this judge nothing: their interval says little."""


class TextsError(ValueError):
    """What is wrong with a dataset, in which line, and the way out."""

    def __init__(self, what: str, way_out: str, line: int | None = None) -> None:
        self.what, self.way_out, self.line = what, way_out, line
        where = "" if line is None else f"line {line} "
        super().__init__(f"{where}{what}; {way_out}")


@dataclass(frozen=True, kw_only=True)
class TextSample:
    """One sample: a text, or the messages of a chat, to which the chat template is applied."""

    line: int
    text: str | None = None
    messages: tuple[Mapping[str, str], ...] = ()

    @property
    def digest(self) -> bytes:
        """Return a digest of the words, without case, spaces and roles."""
        parts = (self.text,) if self.text is not None else (m["content"] for m in self.messages)
        words = " ".join(" ".join(parts).casefold().split())
        return hashlib.sha256(words.encode()).digest()[:16]


def read_texts(path: Path, most: int | None = None) -> Iterator[TextSample]:
    """Yield the samples of a file, the first `most` of them; blank lines are none.

    Raises TextsError.
    """
    if path.suffix not in KINDS:
        raise TextsError(
            f"is no dataset of texts: {path.name}", f"name a file that ends in {', '.join(KINDS)}"
        )
    return islice(_samples(path), most)


def _samples(path: Path) -> Iterator[TextSample]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(_lines(file), 1):
                if line.strip():
                    yield _sample(path, number, line)
    except OSError as error:
        raise TextsError(f"cannot be read: {error.strerror}", "name a readable file") from error


def _lines(file: Any) -> Iterator[bytes]:
    number = 1
    while line := file.readline(LONGEST_LINE + 1):
        if len(line) > LONGEST_LINE:
            raise TextsError(f"is longer than {LONGEST_LINE:,} bytes", "split the text", number)
        yield line
        number += 1


def _sample(path: Path, number: int, line: bytes) -> TextSample:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise TextsError("is not UTF-8 text", "save the file as UTF-8", number) from error
    if path.suffix == PLAIN:
        return TextSample(line=number, text=text)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TextsError(
            "is no JSON", f"write one JSON object a line: {ALLOWED}", number
        ) from error
    if isinstance(document, Mapping):
        if isinstance(document.get("text"), str) and document["text"].strip():
            return TextSample(line=number, text=document["text"])
        messages = document.get("messages")
        if isinstance(messages, list) and messages and all(map(_is_message, messages)):
            chosen = ({"role": m["role"], "content": m["content"]} for m in messages)
            return TextSample(line=number, messages=tuple(chosen))
    raise TextsError("has neither text nor messages", f"write {ALLOWED}", number)


def _is_message(message: object) -> bool:
    return isinstance(message, Mapping) and all(
        isinstance(message.get(key), str) for key in ("role", "content")
    )


def shared_line(calibration: Path, samples: int, evaluation: Path) -> tuple[int, int] | None:
    """Return the first line of an evaluation set that calibration has too, and its line there.

    None where they share none. Case, spaces and the roles of messages do not count. Raises
    TextsError.
    """
    known: dict[bytes, int] = {}
    for sample in read_texts(calibration, samples):
        known.setdefault(sample.digest, sample.line)
    for sample in read_texts(evaluation):
        if sample.digest in known:
            return sample.line, known[sample.digest]
    return None
