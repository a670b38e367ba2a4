"""The bars of the servers before a GPU, from the rounds of one experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.measure import Bar, Measure
from benchmarks.servers.harness import spread

GROUP = 16
Round = Mapping[str, Mapping[str, Any]]
Value = Callable[[Round], float]


def bars(model: str, found: Sequence[Round], cores: Mapping[int, int]) -> list[Measure]:
    """Every measure of one model.

    `cores`: those given to our server by its number of HTTP processes.
    """
    table = _Table(model, found)
    numbers = sorted(cores)
    rows = [*_common(table, numbers, cores)]
    return [
        *(_small(table, numbers, cores) if model == "minilm" else _large(table, numbers, cores)),
        *rows,
    ]


class _Table:
    """Measures of one model's rounds."""

    def __init__(self, model: str, found: Sequence[Round]) -> None:
        self._model, self._found = model, found

    def row(self, name: str, value: Value, unit: str, bar: Bar | None = None) -> Measure:
        """The median of one value over the rounds."""
        found = spread([value(one) for one in self._found])
        command = f"python -m benchmarks.h200.experiment … {self._model} …"
        whole = f"{self._model}: {name}"
        return Measure(
            name=whole,
            value=found.median,
            unit=unit,
            command=command,
            bar=bar,
            low=found.low,
            high=found.high,
        )

    def best(self, numbers: Sequence[int], point: str) -> int:
        """The number of HTTP processes that answers most, by the median round."""
        return max(
            numbers,
            key=lambda number: (
                spread([one[f"ours {number} {point}"]["rate"] for one in self._found]).median
            ),
        )


def _rate(point: str, times: int = 1) -> Value:
    return lambda one: times * float(one[point]["rate"])


def _over(above: Value, below: Value) -> Value:
    return lambda one: above(one) / below(one)


def _constant(value: float) -> Value:
    return lambda one: float(value)


def _lone(point: str) -> Value:
    return lambda one: float(one[point]["p50_ms"])


def _large(table: _Table, numbers: Sequence[int], cores: Mapping[int, int]) -> list[Measure]:
    engine, first = _rate("engine rate"), numbers[0]
    single, sixteen, busy = (
        table.best(numbers, point) for point in ("saturated", "sixteen", "c=64")
    )

    def over(one: Round) -> float:
        return _lone(f"ours {first} c=1")(one) - _lone("engine lone")(one)

    return [
        table.row(
            f"saturated by single sentences / engine alone ({_shape(single, cores)})",
            _over(_rate(f"ours {single} saturated"), engine), "x", Bar(kind="at least", limit=0.9),
        ),
        table.row(
            f"saturated by requests of {GROUP} / engine alone ({_shape(sixteen, cores)})",
            _over(_rate((
                f"ours {sixteen} "
                f"sixteen"
            ), GROUP), engine), "x", Bar(kind="at least", limit=0.9),
        ),
        table.row(
            f"64 clients: ours / naive ({_shape(busy, cores)})",
            _over(_rate(f"ours {busy} c=64"), _rate("naive c=64")), "x", Bar(kind="at least",
            limit=20),
        ),
        table.row(
            (
                f"one client: p50 above the engine's own "
                f"({_shape(first, cores)})"
            ), over, "ms", Bar(kind="at most", limit=0.4)
        ),
        table.row(
            f"one client: p50 of naive / ours ({_shape(first, cores)})",
            _over(_lone("naive c=1"), _lone(f"ours {first} c=1")), "x", Bar(kind="at least",
            limit=6),
        ),
    ]  # fmt: skip


def _small(table: _Table, numbers: Sequence[int], cores: Mapping[int, int]) -> list[Measure]:
    engine, first, last = _rate("engine rate"), numbers[0], numbers[-1]
    sixteen = table.best(numbers, "sixteen")
    found = [
        table.row(
            f"requests of {GROUP} / engine alone ({_shape(sixteen, cores)})",
            _over(_rate((
                f"ours {sixteen} "
                f"sixteen"
            ), GROUP), engine), "x", Bar(kind="at least", limit=0.8),
        ),
        table.row((
            f"one client: p50 "
            f"({_shape(first, cores)})"
        ), _lone(f"ours {first} c=1"), "ms", Bar(kind="at most", limit=0.7)),
        table.row((
            "one client: p50 of "
            "naive / ours"
        ), _over(_lone("naive c=1"), _lone(f"ours {first} c=1")), "x"),
        table.row((
            "64 clients: ours / "
            "naive"
        ), _over(_rate(f"ours {last} c=64"), _rate("naive c=64")), "x"),
    ]  # fmt: skip
    for number in numbers:
        per_core = _over(_rate(f"ours {number} saturated"), _constant(cores[number]))
        name = f"single sentences per core ({_shape(number, cores)})"
        found.append(table.row(name, per_core, "requests/s", Bar(kind="at least", limit=8000)))
    several = [number for number in numbers if number > 1]
    if len(several) > 1:
        low, high = several[0], several[-1]
        growth = _over(_rate(f"ours {high} saturated"), _rate(f"ours {low} saturated"))
        linear = _over(growth, _constant(high / low))
        name = f"single sentences: growth from {low} to {high} HTTP processes, of linear growth"
        found.append(table.row(name, linear, "x", Bar(kind="at least", limit=0.9)))
    return found


def _common(table: _Table, numbers: Sequence[int], cores: Mapping[int, int]) -> list[Measure]:
    first = numbers[0]
    found = [
        table.row("engine alone", _rate("engine rate"), "texts/s"),
        table.row("engine alone, one row, p50", _lone("engine lone"), "ms"),
        table.row("naive, 64 clients", _rate("naive c=64"), "requests/s"),
        table.row("naive, one client, p50", _lone("naive c=1"), "ms"),
        table.row(
            "duplicate control: saturated",
            _over(_rate(f"ours {first} again saturated"), _rate(f"ours {first} saturated")),
            "x",
        ),
        table.row(
            "duplicate control: p50 of one client",
            _over(_lone(f"ours {first} again c=1"), _lone(f"ours {first} c=1")),
            "x",
        ),
    ]
    for number in numbers:
        shape = _shape(number, cores)
        found += [
            table.row(f"ours, one client, p50 ({shape})", _lone(f"ours {number} c=1"), "ms"),
            table.row(f"ours, 64 clients ({shape})", _rate(f"ours {number} c=64"), "requests/s"),
            table.row(
                f"ours, saturated by single sentences ({shape})",
                _rate(f"ours {number} saturated"),
                "requests/s",
            ),
            table.row(
                f"ours, requests of {GROUP} ({shape})",
                _rate(f"ours {number} sixteen", GROUP),
                "texts/s",
            ),
        ]
    return found


def _shape(number: int, cores: Mapping[int, int]) -> str:
    return f"{number} HTTP process{'es' if number > 1 else ''}, {cores[number]} cores"
