"""Phrases, and numbers as they are shown: sizes, latencies, rates and amounts."""

from __future__ import annotations

from collections.abc import Iterable

from onboarding.fault import comma_list, did_you_mean

DASH, UNKNOWN = "–", "unknown"


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


def milliseconds(value: float | None) -> str:
    """Format a latency to three digits; a dash for None."""
    if value is None:
        return DASH
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ms"


def per_second(value: float | None) -> str:
    """Format requests, or rows, a second; a dash for None."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def usd(value: float | None) -> str:
    """Return an amount in USD with two decimals; one below a USD may have three digits."""
    if value is None:
        return UNKNOWN
    is_whole = abs(value) >= 1 or round(value, 2) == value
    return f"{value:,.2f}" if is_whole else f"{value:.3g}"
