"""A run of benchmarks; measured numbers, their bars, and the machine and date they come from."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.table import Table

from roundhouse.paths import Paths
from roundhouse.processes import Processes


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """Where and when something was measured; the machine is described without its name."""

    machine: str
    date: str


def circumstances(machine: str | None = None) -> Circumstances:
    """Return the description of this machine, or the given one, with the date of today."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return Circumstances(machine=_machine() if machine is None else machine, date=today)


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return f"{next(names, 'unknown processor')}, {cores} cores, {memory:.0f} GiB"


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


def table(title: str, measures: Sequence[Measure]) -> Table:
    """Return the measures as a table for people."""
    result = Table(title=title, title_justify="left")
    for column in ("measured", "value", "rounds", "unit", "bar", ""):
        justify = "right" if column in ("value", "rounds", "bar") else "left"
        result.add_column(column, justify=justify)  # type: ignore[arg-type]
    for measure in measures:
        color = {"held": "green", "missed": "red"}.get(measure.verdict, "none")
        rounds = "" if measure.low is None else f"{measure.low:,.4g} to {measure.high:,.4g}"
        bar = "" if measure.bar is None else str(measure.bar)
        verdict = f"[{color}]{measure.verdict}[/{color}]"
        result.add_row(measure.name, f"{measure.value:,.4g}", rounds, measure.unit, bar, verdict)
    return result


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

    def empty_folder(self, name: str) -> Path:
        """Return the folder of a benchmark without what an earlier run left there."""
        shutil.rmtree(self.folder(name))
        return self.folder(name)

    def rounds(self, default: int) -> int:
        """Return BENCH_ROUNDS, for a quick look, or the default. Raises ValueError."""
        text = self.variables.get("BENCH_ROUNDS") or str(default)
        if not text.isdigit() or int(text) < 1:
            raise ValueError(f"BENCH_ROUNDS is {text!r}; it must be a whole number from 1 up.")
        return int(text)
