"""Values of metric math: numbers, time series and lists of them; pure.

A series maps the start of each period (seconds since the epoch) to its value; a period without data
is absent. Source: CloudWatch user guide, "Using metric math".
"""

from __future__ import annotations

import bisect
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
REDUCTIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "SUM": math.fsum,
    "AVG": statistics.fmean,
    "MIN": min,
    "MAX": max,
    "STDDEV": statistics.pstdev,
    "DATAPOINT_COUNT": lambda values: float(len(values)),
}
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


def combine(operation: Number, left: Value, right: Value) -> Value:
    """Return two values under an operator.

    Two series meet where both have data; a number or a series meets every series of a list.
    """
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            raise MathError(f"lists of {len(left)} and {len(right)} time series cannot be combined")
        return [_join(operation, *pair) for pair in zip(left, right, strict=True)]
    if isinstance(left, list):
        return [_join(operation, item, right) for item in left if not isinstance(right, list)]
    if isinstance(right, list):
        return [_join(operation, left, item) for item in right]
    if isinstance(left, Mapping) or isinstance(right, Mapping):
        return _join(operation, left, right)
    result = _result(operation, left, right)
    return math.nan if result is None else result


def _join(operation: Number, left: float | Series, right: float | Series) -> Series:
    pairs: dict[float, tuple[float, float]] = {}
    if isinstance(left, Mapping):
        if isinstance(right, Mapping):
            pairs = {at: (value, right[at]) for at, value in left.items() if at in right}
        else:
            pairs = {at: (value, right) for at, value in left.items()}
    elif isinstance(right, Mapping):
        pairs = {at: (left, value) for at, value in right.items()}
    results = {at: _result(operation, *pair) for at, pair in pairs.items()}
    return {at: value for at, value in results.items() if value is not None}


def _at(value: Value, at: float) -> float | None:
    if isinstance(value, list):
        raise MathError("IF chooses between time series and numbers, not lists")
    return value.get(at) if isinstance(value, Mapping) else value


def _result(operation: Number, left: float, right: float) -> float | None:
    """None where arithmetic has no answer: CloudWatch shows no datapoint for a division by zero."""
    try:
        return float(operation(left, right))
    except (ZeroDivisionError, OverflowError, ValueError):
        return None


def reduce_series(reduce: Callable[[Sequence[float]], float], value: Value) -> Value:
    """Return SUM and its like: one series of a list, one number of a series."""
    if isinstance(value, list):
        times = sorted({at for item in value for at in item})
        return {at: float(reduce([item[at] for item in value if at in item])) for at in times}
    if isinstance(value, Mapping):
        return float(reduce(list(value.values()))) if value else math.nan
    raise MathError("a function over time series was given a number")


def map_series(change: Callable[[float], float], value: Value) -> Value:
    """Return ABS and its like, value by value."""
    if not isinstance(value, Mapping | list):
        return change(value)
    return per_series(lambda series: {at: change(item) for at, item in series.items()}, value, "")


def per_series(change: Callable[[Series], Series], value: Value, refusal: str) -> Value:
    """Return the change of a series or of each series of a list; a number is refused."""
    if isinstance(value, list):
        return [change(series) for series in value]
    if isinstance(value, Mapping):
        return change(value)
    raise MathError(refusal)


def choose(condition: Value, then: Value, otherwise: Value) -> Value:
    """Return IF: at each time the one or the other, where condition and choice have data."""
    if isinstance(condition, list):
        raise MathError("IF takes a time series or a number as its condition, not a list")
    if not isinstance(condition, Mapping):
        return then if condition != 0 else otherwise
    chosen = {at: _at(then if value != 0 else otherwise, at) for at, value in condition.items()}
    return {at: value for at, value in chosen.items() if value is not None}


def fill_gaps(value: Value, fill: float | str, times: Sequence[float]) -> Value:
    """Return FILL: a number, REPEAT of the last value, or LINEAR between its neighbors."""

    def fill_one(series: Series) -> Series:
        return _fill_series(series, fill, times)

    return per_series(fill_one, value, "FILL was given a number in place of a time series")


def _fill_series(series: Series, fill: float | str, times: Sequence[float]) -> Series:
    if not isinstance(fill, str):
        return {at: series.get(at, fill) for at in times}
    values, known = dict(series), sorted(series)
    for at in times:
        index = bisect.bisect_left(known, at)
        if at in series or index == 0:
            continue
        before = known[index - 1]
        if fill == "REPEAT":
            values[at] = series[before]
        elif index < len(known):
            after = known[index]
            slope = (series[after] - series[before]) / (after - before)
            values[at] = series[before] + slope * (at - before)
    return dict(sorted(values.items()))


def changes(value: Value, per_second: bool) -> Value:
    """Return DIFF, and RATE with `per_second`: each value less the one before it."""

    def differences(series: Series) -> Series:
        pairs = itertools.pairwise(sorted(series))
        return {b: (series[b] - series[a]) / (b - a if per_second else 1.0) for a, b in pairs}

    return per_series(differences, value, "DIFF and RATE take time series, not a number")
