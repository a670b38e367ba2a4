"""The known word nearest to a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str | None:
    """The closest known word, or None when none is close; `cutoff`, 0 to 1, says how close."""
    lower = {name.lower(): name for name in known}
    matches = difflib.get_close_matches(word[:200].lower(), lower, n=1, cutoff=cutoff)
    return lower[matches[0]] if matches else None


def did_you_mean(word: str, known: Iterable[str], otherwise: str) -> str:
    """The way out of an unknown word: its nearest known one, or else what `otherwise` says."""
    match = nearest(word, known)
    return otherwise if match is None else f"did you mean '{match}'?"


def comma_list(words: Iterable[str], limit: int = 12) -> str:
    """Words as a list a person can read; long lists are cut."""
    names = list(words)
    shown = ", ".join(names[:limit]) if names else "none"
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
