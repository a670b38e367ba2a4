"""A run of benchmarks; measured numbers, their bars, and the machine and date they come from."""

from __future__ import annotations

import datetime
import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from engine_build.machine import description
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.table import Table, table


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where and when something was measured; the machine is described without its name."""

    machine: str
    date: str


def circumstances(machine: str | None = None) -> Circumstances:
    """Return the description of this machine, or the given one, with the date of today."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Circumstances(machine=description() if machine is None else machine, date=today)


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A limit that a number is held against."""

    kind: Literal["at most", "at least"]
    limit: float

    def holds(self, value: float) -> bool:
        """Return True when a value is within the limit."""
        return value <= self.limit if self.kind == "at most" else value >= self.limit

    def __str__(self) -> str:
        return f"{self.kind} {self.limit:g}"


def at_most(limit: float) -> Bar:
    """Return the bar of a number that must not be greater."""
    return Bar(kind="at most", limit=limit)


def at_least(limit: float) -> Bar:
    """Return the bar of a number that must not be less."""
    return Bar(kind="at least", limit=limit)


@dataclass(frozen=True)
class Measure:
    """One number of a benchmark; `low` and `high` are its lowest and highest round."""

    name: str
    value: float
    unit: str
    bar: Bar | None = None
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    command: str = ""

    @property
    def verdict(self) -> str:
        """`held`, `missed`, or nothing without a bar."""
        if self.bar is None:
            return ""
        return "held" if self.bar.holds(self.value) else "missed"

    def as_json(self) -> dict[str, Any]:
        """Return {name, value, unit, bar, verdict}."""
        bar = None if self.bar is None else str(self.bar)
        fields = {"name": self.name, "value": self.value, "unit": self.unit}
        return {**fields, "bar": bar, "verdict": self.verdict}


def of_rounds(
    name: str,
    values: Sequence[float],
    unit: str,
    bar: Bar | None = None,
    *,
    value: Callable[[Sequence[float]], float] = statistics.median,
) -> Measure:
    """Return the measure of one value a round; their median unless `value` chooses another."""
    return Measure(name, value(values), unit, bar, low=min(values), high=max(values))


def with_command(command: str, measures: Iterable[Measure]) -> list[Measure]:
    """Return measures with the command that repeats them."""
    return [replace(measure, command=command) for measure in measures]


def write(measures: Sequence[Measure], circumstances: Circumstances, path: Path) -> None:
    """Write the measures as a JSON list.

    Objects of {name, value, unit, bar, verdict, command, machine, date}, with {low, high} of
    rounds.
    """
    rows = [
        {
            **measure.as_json(),
            "command": measure.command,
            **({} if measure.low is None else {"low": measure.low, "high": measure.high}),
            **asdict(circumstances),
        }
        for measure in measures
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")


def measures_table(title: str, measures: Sequence[Measure]) -> Table:
    """Return the measures as a table for people."""
    rows = (
        (
            measure.name,
            f"{measure.value:,.4g}",
            "" if measure.low is None else f"{measure.low:,.4g} to {measure.high:,.4g}",
            measure.unit,
            "" if measure.bar is None else str(measure.bar),
            measure.verdict,
        )
        for measure in measures
    )
    columns = ("measured", "value", "rounds", "unit", "bar", "")
    return table(columns, rows, right=("value", "rounds", "bar"), title=title)


@dataclass(frozen=True, kw_only=True)
class Context:
    """One run of `python -m benchmarks`."""

    paths: Paths
    run: Processes
    variables: Mapping[str, str]

    def folder(self, name: str) -> Path:
        """Return the folder of a benchmark, build/bench/NAME."""
        path = self.paths.build / "bench" / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def rounds(self, default: int) -> int:
        """Return BENCH_ROUNDS, for a quick look, or the default. Raises ValueError."""
        text = self.variables.get("BENCH_ROUNDS") or str(default)
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"BENCH_ROUNDS is {text!r}; it must be a whole number from 1 up.")
        return int(text)
