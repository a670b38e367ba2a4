"""Amounts in USD: their one format, and when what is saved has paid for a build. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onboarding.prices import HOURS_A_MONTH

UNKNOWN, NEVER = "unknown", "never"
COLUMNS = (
    "", "now, USD a month", "candidate, USD a month", "builds, USD", "break-even, hours",
)  # fmt: skip
RIGHT = COLUMNS[1:]
CENT = 0.01
"""USD a month; a smaller difference is none."""


def usd(value: float | None) -> str:
    """Return an amount with two decimals; one below a USD may have three digits."""
    if value is None:
        return UNKNOWN
    is_whole = abs(value) >= 1 or round(value, 2) == value
    return f"{value:,.2f}" if is_whole else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """What runs, or a baseline, against a candidate; None: not known."""

    name: str
    now: float | None
    """USD a month."""
    candidate: float | None
    """USD a month."""
    build: float | None
    """USD of what must be built; 0: nothing."""

    @property
    def hours(self) -> float | None:
        """Hours until the saving has paid the build; None: never, or not known."""
        if self.now is None or self.candidate is None or self.build is None or self.is_never:
            return None
        return self.build / (self.now - self.candidate) * HOURS_A_MONTH

    @property
    def is_never(self) -> bool:
        """Return whether nothing is saved, so that no build is ever paid back."""
        known = self.now is not None and self.candidate is not None
        return known and self.now - self.candidate < CENT  # type: ignore[operator]

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table, by COLUMNS."""
        hours = self.hours
        paid = NEVER if self.is_never else UNKNOWN if hours is None else f"{hours:,.1f}"
        return self.name, usd(self.now), usd(self.candidate), usd(self.build), paid

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**asdict(self), "hours": self.hours}
