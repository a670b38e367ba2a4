"""Task files: prompts with the answers expected, by which a text generator is scored."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import Field, ValidationError

from onboarding.values import Value
from onboarding.yaml_text import load_yaml

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
