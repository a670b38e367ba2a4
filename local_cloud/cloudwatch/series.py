"""What metric math computes with: scalars, time series and lists of them; pure.

A series maps the start of each period (seconds since the epoch) to its value; a period without data
is absent.
Source: CloudWatch user guide, "Using metric math".
"""

from __future__ import annotations

import itertools
import math
import operator
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

Series = Mapping[float, float]
Value = float | Series | list["Series"]
Number = Callable[[float, float], float]


class MathError(Exception):
    """An expression that cannot be computed; the message says why."""


OPERATORS: dict[str, Number] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "^": math.pow,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "AND": lambda a, b: a != 0 and b != 0,
    "OR": lambda a, b: a != 0 or b != 0,
}


def combine(operation: Number, left: Value, right: Value) -> Value:
    """Two values under an operator.

    Series meet where both have data, a scalar or series meets each of a list's.
    """
    if isinstance(left, list) or isinstance(right, list):
        return _each(operation, left, right)
    if isinstance(left, Mapping) or isinstance(right, Mapping):
        return _join(operation, left, right)
    result = _result(operation, left, right)
    return math.nan if result is None else result


def _each(operation: Number, left: Value, right: Value) -> Value:
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            raise MathError(f"lists of {len(left)} and {len(right)} time series cannot be combined")
        pairs: Sequence[tuple[float | Series, float | Series]] = list(zip(left, right, strict=True))
    elif isinstance(left, list):
        pairs = [(item, right) for item in left] if not isinstance(right, list) else []
    else:
        pairs = [(left, entry) for entry in right] if isinstance(right, list) else []
    return [_join(operation, *pair) for pair in pairs]


def _join(operation: Number, left: float | Series, right: float | Series) -> Series:
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        found = {at: _result(operation, left[at], right[at]) for at in left if at in right}
    elif isinstance(left, Mapping):
        found = {
            at: _result(operation, value, float(right))
            for at, value in left.items()
            if not isinstance(right, Mapping)
        }
    elif isinstance(right, Mapping):
        found = {at: _result(operation, left, value) for at, value in right.items()}
    else:
        found = {}
    return {at: value for at, value in found.items() if value is not None}


def _result(operation: Number, left: float, right: float) -> float | None:
    """None where arithmetic has no answer: CloudWatch shows no datapoint for a division by zero."""
    try:
        return float(operation(left, right))
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


def reduce_series(reduce: Callable[[Sequence[float]], float], value: Value) -> Value:
    """SUM and its like.

    A list becomes one series over whatever has data, a series becomes one number.
    """
    if isinstance(value, list):
        times = sorted({at for item in value for at in item})
        return {at: float(reduce([entry[at] for entry in value if at in entry])) for at in times}
    if isinstance(value, Mapping):
        if not value:
            return math.nan
        return float(reduce(list(value.values())))
    raise MathError("a function over time series was given a number")


def map_series(change: Callable[[float], float], value: Value) -> Value:
    """ABS and its like, value by value."""
    if isinstance(value, list):
        return [{at: change(each) for at, each in series.items()} for series in value]
    if isinstance(value, Mapping):
        return {at: change(each) for at, each in value.items()}
    return change(value)


def choose(condition: Value, then: Value, otherwise: Value) -> Value:
    """IF: at each time the one or the other.

    No datapoint where the condition or the chosen one has none.
    """
    if isinstance(condition, list):
        raise MathError("IF takes a time series or a number as its condition, not a list")
    if not isinstance(condition, Mapping):
        return then if condition != 0 else otherwise
    found = {at: _at(then if value != 0 else otherwise, at) for at, value in condition.items()}
    return {at: value for at, value in found.items() if value is not None}


def _at(value: Value, at: float) -> float | None:
    if isinstance(value, list):
        raise MathError("IF chooses between time series and numbers, not lists")
    return value.get(at) if isinstance(value, Mapping) else value


def fill_gaps(value: Value, fill: float | str, times: Sequence[float]) -> Value:
    """FILL: every period has a value.

    A number, REPEAT of the last one, or LINEAR between its neighbors.
    """
    if isinstance(value, list):
        return [_fill_series(item, fill, times) for item in value]
    if isinstance(value, Mapping):
        return _fill_series(value, fill, times)
    raise MathError("FILL was given a number in place of a time series")


def _fill_series(series: Series, fill: float | str, times: Sequence[float]) -> Series:
    if not isinstance(fill, str):
        return {at: series.get(at, fill) for at in times}
    known, found = sorted(series), dict(series)
    for at in times:
        before = max((item for item in known if item < at), default=None)
        after = min((entry for entry in known if entry > at), default=None)
        if at in found or before is None:
            continue
        if fill == "REPEAT":
            found[at] = series[before]
        elif after is not None:
            found[at] = series[before] + (series[after] - series[before]) * (at - before) / (
                after - before
            )
    return dict(sorted(found.items()))


def changes(value: Value, per_second: bool) -> Value:
    """DIFF, and RATE with `per_second`: each value less the one before it."""
    if isinstance(value, list):
        return [_changes(item, per_second) for item in value]
    if isinstance(value, Mapping):
        return _changes(value, per_second)
    raise MathError("DIFF and RATE take time series, not a number")


def _changes(series: Series, per_second: bool) -> Series:
    times = sorted(series)
    pairs = itertools.pairwise(times)
    return {b: (series[b] - series[a]) / ((b - a) if per_second else 1.0) for a, b in pairs}


REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "SUM": math.fsum, "AVG": statistics.fmean, "MIN": min, "MAX": max, "STDDEV": statistics.pstdev,
    "DATAPOINT_COUNT": lambda values: float(len(values)),
}  # fmt: skip
CHANGES: dict[str, Callable[[float], float]] = {
    "ABS": abs,
    "CEIL": lambda value: float(math.ceil(value)),
    "FLOOR": lambda value: float(math.floor(value)),
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One statistic of one metric; `unit` None takes values of every unit."""

    namespace: str
    name: str
    statistic: str
    dimensions: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """A metric that exists."""

    namespace: str
    name: str
    dimensions: Mapping[str, str]
