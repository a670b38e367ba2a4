"""Return on investment: a fleet that runs against one that is proposed. Pure arithmetic."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from onboarding.prices import HOURS_A_MONTH

DAYS_A_MONTH = HOURS_A_MONTH / 24
CENT = 0.01
"""USD a month; a smaller difference is none."""


@dataclass(frozen=True, kw_only=True)
class Instances:
    """Instances of one type; None: not known."""

    instance_type: str
    count: int | None
    usd_an_hour: float | None
    """Of one."""

    @property
    def usd_a_month(self) -> float | None:
        """What they cost in a month of 730 hours; no instance costs nothing, whatever its price."""
        if self.count == 0:
            return 0.0
        if self.count is None or self.usd_an_hour is None:
            return None
        return self.count * self.usd_an_hour * HOURS_A_MONTH

    def __str__(self) -> str:
        return f"{'?' if self.count is None else self.count} x {self.instance_type}"


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All instances of an endpoint, and where their count comes from."""

    groups: tuple[Instances, ...]
    origin: str

    @property
    def usd_a_month(self) -> float | None:
        """None where one part is not known."""
        costs = [group.usd_a_month for group in self.groups]
        known = [cost for cost in costs if cost is not None]
        return sum(known) if len(known) == len(costs) else None

    def __str__(self) -> str:
        return ", ".join(map(str, self.groups)) or "nothing"


@dataclass(frozen=True, kw_only=True)
class Investment:
    """One endpoint as it runs and as its files have it."""

    name: str
    present: Fleet | None
    """None: it is not deployed, or cannot be read."""
    proposed: Fleet
    build_usd: float | None
    """Of the engines that are missing; 0 where none is, None where it is not known."""
    note: str = ""
    """Why something is not known."""

    @property
    def saving_a_month(self) -> float | None:
        """USD, negative where the proposed fleet costs more; None where it is not known."""
        before = None if self.present is None else self.present.usd_a_month
        after = self.proposed.usd_a_month
        if before is None or after is None:
            return None
        return 0.0 if abs(before - after) < CENT else before - after

    @property
    def break_even_days(self) -> float | None:
        """Days until what is saved has paid the build.

        None where nothing is saved, and where a price is not known.
        """
        saving = self.saving_a_month
        if saving is None or saving <= 0 or self.build_usd is None:
            return None
        return self.build_usd / saving * DAYS_A_MONTH

    @property
    def outcome(self) -> str:
        """The result in one sentence."""
        saving = self.saving_a_month
        if self.present is None and self.note:
            return "not known, since what runs is not"
        if self.present is None:
            return "nothing runs that it could be compared with"
        if saving is None:
            return "not known, since a price or a number of instances is not"
        if saving == 0:
            return "no saving, so the build is never paid back"
        if saving < 0:
            return f"{-saving:,.2f} USD a month more, so the build is never paid back"
        if self.build_usd is None:
            return f"saves {saving:,.2f} USD a month; the cost of the build is not known"
        if self.build_usd == 0:
            return f"saves {saving:,.2f} USD a month, and nothing is to be built"
        return (
            f"saves {saving:,.2f} USD a month: {self.build_usd:,.2f} USD of builds are paid back "
            f"in {self.break_even_days:,.1f} days"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {
            **asdict(self),
            "present_usd_a_month": None if self.present is None else self.present.usd_a_month,
            "proposed_usd_a_month": self.proposed.usd_a_month,
            "saving_usd_a_month": self.saving_a_month,
            "break_even_days": self.break_even_days,
            "outcome": self.outcome,
        }
