"""The measures and bars of the servers before a GPU, from the rounds of one experiment."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measure import Measure, at_least, at_most, with_command
from benchmarks.servers.harness import Row, round_measures

GROUP = 16
Round = Mapping[str, Mapping[str, Any]]
Value = Callable[[Round], float]
ENGINE = "engine rate"


def bars(model: str, results: Sequence[Round], cores: Mapping[int, int]) -> list[Measure]:
    """Return every measure of one model.

    `cores`: those given to our server by its number of HTTP processes.
    """
    experiment = Experiment(results=results, cores=cores)
    rows = [
        *(_small(experiment) if model == "minilm" else _large(experiment)),
        *_common(experiment),
    ]
    named = [(f"{model}: {name}", unit, value, bar) for name, unit, value, bar in rows]
    command = f"python -m benchmarks.h200.experiment … {model} …"
    return with_command(command, round_measures(results, named))


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """The rounds, and the cores of our server by its number of HTTP processes."""

    results: Sequence[Round]
    cores: Mapping[int, int]

    @property
    def numbers(self) -> list[int]:
        """The numbers of HTTP processes."""
        return sorted(self.cores)

    def best(self, point: str) -> int:
        """Return the number of HTTP processes that answers most, by the median round."""

        def median(number: int) -> float:
            rate = _rate(f"ours {number} {point}")
            return statistics.median(map(rate, self.results))

        return max(self.numbers, key=median)

    def shape(self, number: int) -> str:
        """Return a number of HTTP processes and their cores, as words."""
        return f"{number} HTTP process{'es' if number > 1 else ''}, {self.cores[number]} cores"

    def above_engine(self) -> Row:
        """Return the row of one client's p50 above the engine's own."""
        first = self.numbers[0]
        own, engine = _p50(f"ours {first} c=1"), _p50("engine lone")
        name = f"one client: p50 above the engine's own ({self.shape(first)})"
        return name, "ms", lambda round: own(round) - engine(round), at_most(0.4)

    def of_engine(self, name: str, point: str, limit: float | None, rows: int = 1) -> Row:
        """Return the row of our best rate in texts over that of the engine alone."""
        number = self.best(point)
        value = _ratio(f"ours {number} {point}", ENGINE, times=rows)
        bar = None if limit is None else at_least(limit)
        return f"{name} / engine alone ({self.shape(number)})", "x", value, bar


def _rate(point: str, times: float = 1) -> Value:
    return lambda round: times * float(round[point]["rate"])


def _p50(point: str) -> Value:
    return lambda round: float(round[point]["p50_ms"])


def _ratio(above: str, below: str, field: str = "rate", times: float = 1) -> Value:
    return lambda round: times * float(round[above][field]) / float(round[below][field])


def _large(experiment: Experiment) -> list[Row]:
    return [
        experiment.of_engine("saturated by single sentences", "saturated", None),
        experiment.of_engine(f"saturated by requests of {GROUP}", "sixteen", 0.9, GROUP),
        experiment.above_engine(),
    ]


def _small(experiment: Experiment) -> list[Row]:
    numbers, shape, cores = experiment.numbers, experiment.shape, experiment.cores
    rows = [
        experiment.of_engine(f"saturated by requests of {GROUP}", "sixteen", 0.9, GROUP),
        experiment.above_engine(),
    ]
    for number in numbers:
        per_core = _rate(f"ours {number} saturated", 1 / cores[number])
        name = f"single sentences per core ({shape(number)})"
        rows.append((name, "requests/s", per_core, at_least(8000)))
    several = [number for number in numbers if number > 1]
    if len(several) > 1:
        low, high = several[0], several[-1]
        growth = _ratio(f"ours {high} saturated", f"ours {low} saturated", times=low / high)
        name = f"single sentences: growth from {low} to {high} HTTP processes, of linear growth"
        rows.append((name, "x", growth, at_least(0.9)))
    return rows


def _common(experiment: Experiment) -> list[Row]:
    first = f"ours {experiment.numbers[0]}"
    saturated = _ratio(f"{first} again saturated", f"{first} saturated")
    lone = _ratio(f"{first} again c=1", f"{first} c=1", "p50_ms")
    rows: list[Row] = [
        ("engine alone", "texts/s", _rate(ENGINE), None),
        ("engine alone, one row, p50", "ms", _p50("engine lone"), None),
        ("duplicate control: saturated", "x", saturated, None),
        ("duplicate control: p50 of one client", "x", lone, None),
    ]
    for number in experiment.numbers:
        ours, shape = f"ours {number}", f"({experiment.shape(number)})"
        single = f"ours, saturated by single sentences {shape}"
        sixteen = _rate(f"{ours} sixteen", GROUP)
        rows += [
            (f"ours, one client, p50 {shape}", "ms", _p50(f"{ours} c=1"), None),
            (f"ours, 64 clients {shape}", "requests/s", _rate(f"{ours} c=64"), None),
            (single, "requests/s", _rate(f"{ours} saturated"), None),
            (f"ours, requests of {GROUP} {shape}", "texts/s", sixteen, None),
        ]
    return rows
