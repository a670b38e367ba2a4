"""Measured numbers, their bars, and the machine and date they come from."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.table import Table


def circumstances() -> Circumstances:
    """This machine, today."""
    return Circumstances(
        machine=machine(), date=datetime.datetime.now(datetime.UTC).date().isoformat()
    )


def machine() -> str:
    """Processor, cores and memory, without the machine's name."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    processor = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        "unknown processor",
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


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
    """Write the measures as JSON.

    A list of {name, value, unit, bar, verdict, command, machine, date}, with {low, high} of rounds.
    """
    rows = [
        {
            "name": measure.name,
            "value": measure.value,
            "unit": measure.unit,
            "bar": None if measure.bar is None else str(measure.bar),
            "verdict": measure.verdict,
            "command": measure.command,
            **({} if measure.low is None else {"low": measure.low, "high": measure.high}),
            **asdict(circumstances),
        }
        for measure in measures
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
    for measure in measures:
        colour = {"held": "green", "missed": "red"}.get(measure.verdict, "none")
        bar = "" if measure.bar is None else str(measure.bar)
        rounds = "" if measure.low is None else f"{measure.low:,.4g} to {measure.high:,.4g}"
        result.add_row(
            measure.name,
            f"{measure.value:,.4g}",
            rounds,
            measure.unit,
            bar,
            f"[{colour}]{measure.verdict}[/{colour}]",
        )
    return result
