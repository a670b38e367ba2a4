"""Entities of a token classifier's answer: token by token, or grouped as transformers does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
NO_ENTITY = "O"
"""The label of tokens outside of entities."""


class Entity(NamedTuple):
    """A part of a text, from `start` to `end` in characters."""

    label: str
    score: float
    start: int
    end: int
    text: str


def entities_of(
    arrays: Mapping[str, Array], texts: Sequence[str], *, grouped: bool
) -> list[list[Entity]]:
    """Return each text's entities: of the outputs `labels`, `scores` and `offsets`."""
    columns = (arrays[name].tolist() for name in ("labels", "scores", "offsets"))
    rows = zip(texts, *columns, strict=True)
    return [
        [entity for entity in _row(*row, grouped=grouped) if entity.label != NO_ENTITY]
        for row in rows
    ]


def _row(
    text: str,
    labels: Sequence[str],
    scores: Sequence[float],
    offsets: Sequence[Sequence[int]],
    *,
    grouped: bool,
) -> list[Entity]:
    tokens = [
        Entity(label, score, start, end, text[start:end])
        for label, score, (start, end) in zip(labels, scores, offsets, strict=True)
        if start >= 0
    ]
    return _groups(tokens, text) if grouped else tokens


def _groups(tokens: Sequence[Entity], text: str) -> list[Entity]:
    """Join neighbours of one label; B- begins an entity, I- and labels without either go on."""
    groups: list[list[Entity]] = []
    for token in tokens:
        if groups and _goes_on(token.label, groups[-1][-1].label):
            groups[-1].append(token)
        else:
            groups.append([token])
    return [
        Entity(
            group[0].label.split("-", 1)[-1],
            sum(token.score for token in group) / len(group),
            group[0].start,
            group[-1].end,
            text[group[0].start : group[-1].end],
        )
        for group in groups
    ]


def _goes_on(label: str, before: str) -> bool:
    return not label.startswith("B-") and _tag(label) == _tag(before)


def _tag(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label
