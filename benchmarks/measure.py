"""One measured number, what it is held against, and where it came from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.table import Table


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A limit: the number must be at most, or at least, that."""

    kind: Literal["at most", "at least"]
    limit: float

    def holds(self, value: float) -> bool:
        """True when a value is within the limit."""
        return value <= self.limit if self.kind == "at most" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.kind} {self.limit:g}"


@dataclass(frozen=True, kw_only=True)
class Measure:
    """One number of a benchmark."""

    name: str
    value: float
    unit: str
    command: str
    bar: Bar | None = None
    low: float | None = None
    high: float | None = None
    """The lowest and highest round, where `value` is their median."""

    @property
    def verdict(self) -> str:
        """Held, missed, or no bar."""
        if self.bar is None:
            return ""
        return "held" if self.bar.holds(self.value) else "missed"


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where and when something was measured; the machine is described without its name."""

    machine: str
    date: str


def write(measures: Sequence[Measure], circumstances: Circumstances, path: Path) -> None:
    """Writes a list of {name, value, unit, bar, verdict, command, machine, date} as JSON, with
    {low, high} of rounds.
    """
    rows = [
        {
            "name": each.name,
            "value": each.value,
            "unit": each.unit,
            "bar": None if each.bar is None else str(each.bar),
            "verdict": each.verdict,
            "command": each.command,
            **({} if each.low is None else {"low": each.low, "high": each.high}),
            **asdict(circumstances),
        }
        for each in measures
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def table(title: str, measures: Sequence[Measure]) -> Table:
    """The same, for people."""
    result = Table(title=title, title_justify="left")
    result.add_column("measured")
    for column in ("value", "rounds", "unit", "bar", ""):
        result.add_column(
            column, justify="right" if column in ("value", "rounds", "bar") else "left"
        )
    for each in measures:
        colour = {"held": "green", "missed": "red"}.get(each.verdict, "none")
        bar = "" if each.bar is None else str(each.bar)
        rounds = "" if each.low is None else f"{each.low:,.4g} to {each.high:,.4g}"
        result.add_row(
            each.name,
            f"{each.value:,.4g}",
            rounds,
            each.unit,
            bar,
            f"[{colour}]{each.verdict}[/{colour}]",
        )
    return result
