"""Faults of the files that people write."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

from onboarding.values import Value


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


class Fault(Value):
    """One thing wrong at one place: what, the value given, the values allowed, the way out."""

    file: str
    line: int | None = None
    what: str
    value: str | None = None
    allowed: str | None = None
    way_out: str
    add: str | None = None
    """A line of the file, as it is to be added."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        given = (
            "" if self.value is None or _tells(self.what, self.value) else f", given {self.value}"
        )
        allowed = "" if self.allowed is None else f"; allowed: {self.allowed}"
        end = "" if self.way_out.endswith("?") else "."
        added = "" if self.add is None else f" {self.add}"
        sentence = f"{place}: {self.what}{given}{allowed}; {self.way_out}{end}{added}"
        return " ".join(sentence.split())


def _tells(what: str, value: str) -> bool:
    """True when the message names the value already; bare numbers are always repeated."""
    return (
        not value.isdigit()
        and re.search(rf"(?<![\w.-]){re.escape(value)}(?![\w.-])", what) is not None
    )


class FaultsError(Exception):
    """Every fault found, one sentence a line."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(str(fault) for fault in self.faults)


def sorted_faults(faults: Iterable[Fault]) -> tuple[Fault, ...]:
    """Each fault once, by file and line."""
    return tuple(sorted(dict.fromkeys(faults), key=lambda fault: (fault.file, fault.line or 0)))
