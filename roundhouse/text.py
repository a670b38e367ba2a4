"""Phrases that many messages of the command share."""

from __future__ import annotations

from collections.abc import Iterable

from onboarding.fault import comma_list, did_you_mean


def quantity(number: int, noun: str) -> str:
    """Return a number with its noun: `1 request`, `2 requests`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def choices(name: str | None, known: Iterable[str]) -> str:
    """Return the end of a message: the names that exist, a long list cut, and the nearest one.

    `name` None: no name was given.
    """
    names = tuple(known)
    if not names:
        return "there is none."
    nearest = "" if name is None else did_you_mean(name, names, "")
    return f"allowed: {comma_list(names)}" + (f"; {nearest}" if nearest else ".")
