"""Text datasets of a text generator: a text a line, or JSON lines with texts or chat messages.

Files are read line by line and never held whole.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import Field, ValidationError

from onboarding.values import Value
from onboarding.yaml_text import load_yaml

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


NORMAL_95 = 1.96
"""Standard deviations within which 95 % of a normal distribution lie."""
MORE_ITEMS = 2
"""Added to a task's items where the interval of its score is computed (Bonett and Price, 2012)."""


class TaskFileError(ValueError):
    """Why a file is no task file, with the way out."""


class TaskItem(Value):
    """One prompt, sent as a user's message, and the answers that count as right."""

    prompt: str = Field(min_length=1)
    answers: tuple[Annotated[str, Field(pattern=r"\S")], ...] = Field(min_length=1)


class TaskFile(Value):
    """Prompts of a task; each answer is generated greedily, `max_tokens` long at most."""

    items: tuple[TaskItem, ...] = Field(min_length=1)
    max_tokens: Annotated[int, Field(ge=1, le=4096)] = 64
    match: Literal["contains", "exact"] = "contains"
    """Whether an expected answer is a part of the generated one, or all of it."""
    system: str | None = None
    """A message before every prompt."""

    def messages(self, item: TaskItem) -> list[dict[str, str]]:
        """Return the chat of one prompt."""
        before = [] if self.system is None else [{"role": "system", "content": self.system}]
        return [*before, {"role": "user", "content": item.prompt}]

    def is_right(self, item: TaskItem, answer: str) -> bool:
        """Return True where an answer is one of those expected; case and spaces do not count."""
        given = _normal(answer)
        if self.match == "exact":
            return any(given == _normal(expected) for expected in item.answers)
        return any(_normal(expected) in given for expected in item.answers)


def read_task_file(path: Path) -> TaskFile:
    """Return the contents of a task file. Raises TaskFileError."""
    way_out = (
        "write `items:`, each with `prompt:` and a list `answers:`, and if wanted `max_tokens:`, "
        "`match: contains` or `exact`, `system:`"
    )
    try:
        document = load_yaml(path.read_text(encoding="utf-8"))
        # YAML has no tuples, so the lists of the file are read as JSON would be.
        return TaskFile.model_validate_json(json.dumps(document))
    except ValidationError as error:
        fault = error.errors()[0]
        place = ".".join(map(str, fault["loc"]))
        raise TaskFileError(f"is no task file ({place}: {fault['msg']}); {way_out}") from error
    except (OSError, yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise TaskFileError(f"is no task file; {way_out}") from error


def least_drop(items: int) -> float:
    """Return the smallest fall of a score that so many items can exclude.

    Where no answer changes, the interval of the fall ends there.
    """
    return NORMAL_95 * math.sqrt(2) / (items + MORE_ITEMS)


def _normal(text: str) -> str:
    return " ".join(text.casefold().split())
