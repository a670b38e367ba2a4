"""What may be named in place of a name that is not there."""

from __future__ import annotations

from collections.abc import Iterable

from onboarding.nearest import did_you_mean, listed


def choices(name: str | None, known: Iterable[str]) -> str:
    """The end of a sentence: the names that are there, a long list cut, and the nearest one; `name`
    None was not given.
    """
    names = tuple(known)
    if not names:
        return "there is none."
    meant = "" if name is None else did_you_mean(name, names, "")
    return f"allowed: {listed(names)}" + (f"; {meant}" if meant else ".")
