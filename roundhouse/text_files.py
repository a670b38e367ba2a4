"""Texts that go to an endpoint from a file, a row each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from onboarding.dataset import LABELLED, TEXTS, Datasets
from roundhouse.errors import RoundhouseError

ALLOWED = (
    f"allowed: {TEXTS} (a text a line), {LABELLED} (query, tab, text for a ranker; otherwise "
    "label, tab, text, whose label is not sent)"
)


@dataclass(frozen=True, kw_only=True)
class TextRows:
    """The rows of a file; `first` is what stands before the tab, and empty where there is none."""

    texts: tuple[str, ...]
    first: tuple[str, ...] = ()


def read_text_rows(path: Path) -> TextRows:
    """Read the texts of a file, blank lines left out. Raises RoundhouseError."""
    if path.suffix not in (TEXTS, LABELLED):
        raise RoundhouseError(f"--input {path}: is no file of texts; {ALLOWED}.")
    found = Datasets(path.parent)[path.name]
    if found.problem is not None:
        raise RoundhouseError(f"--input {path}: {found.problem}; {found.way_out}.")
    return TextRows(texts=found.texts, first=found.labels or ())
