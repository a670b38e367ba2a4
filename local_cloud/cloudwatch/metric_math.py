"""The metrics that an alarm watches, and its metric math: what the stacks' expressions use; pure.

A series maps the start of each period (seconds since the epoch) to its value; a period without data
is absent. Source: CloudWatch user guide, "Using metric math".
"""

from __future__ import annotations

import ast
import functools
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Query = Mapping[str, Any]
Series = Mapping[float, float]
Value = float | Series
Operation = Callable[[float, float], float]
DEFAULT_PERIOD = 60
OPERATORS: Mapping[type[ast.AST], Operation] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.And: lambda a, b: a != 0 and b != 0,
    ast.Or: lambda a, b: a != 0 or b != 0,
}
KNOWN = "+ - * /, comparisons, AND, OR, IF(if, then, else), FILL(metric, number) and FLOOR(metric)"


class MathError(Exception):
    """An expression that cannot be computed; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """One statistic of one metric; `unit` None takes values of every unit."""

    namespace: str
    name: str
    statistic: str
    dimensions: Mapping[str, str] = field(default_factory=dict)
    unit: str | None = None


Read = Callable[[Question, float], Series]
"""Returns a statistic by a period in CloudWatch's seconds."""


def watched_series(queries: Sequence[Query], read: Read, times: Sequence[float]) -> Series:
    """Return the series of the one query that returns data. Raises MathError.

    An expression may refer to queries before it; `times` are the starts of its periods.
    """
    returned = [
        str(query["Id"])
        for query in queries
        if str(query.get("ReturnData", True)).lower() != "false"
    ]
    if len(returned) != 1:
        raise MathError(f"exactly one query must return data, found {len(returned)}")
    values: dict[str, Value] = {}
    for query in sorted(queries, key=lambda query: bool(query.get("Expression"))):
        text = query.get("Expression")
        values[str(query["Id"])] = (
            _statistic(query["MetricStat"], read) if not text else evaluate(text, values, times)
        )
    value = values[returned[0]]
    return value if isinstance(value, Mapping) else dict.fromkeys(times, value)


def _statistic(stat: Query, read: Read) -> Series:
    metric = stat["Metric"]
    question = Question(
        namespace=str(metric.get("Namespace")),
        name=str(metric.get("MetricName")),
        statistic=str(stat.get("Stat") or "Average"),
        dimensions={item["Name"]: item.get("Value", "") for item in metric.get("Dimensions") or ()},
        unit=stat.get("Unit"),
    )
    return read(question, float(stat.get("Period") or DEFAULT_PERIOD))


def evaluate(text: str, metrics: Mapping[str, Value], times: Sequence[float]) -> Value:
    """Return an expression's value over metrics by their ids. Raises MathError."""
    words = re.sub(r"\b(AND|OR)\b", lambda word: word[0].lower(), text)
    try:
        tree = ast.parse(words.strip(), mode="eval").body
    except SyntaxError as error:
        raise MathError(f"{text!r} cannot be read: {error.msg}") from error
    return _value(tree, metrics, times)


def _value(tree: ast.AST, metrics: Mapping[str, Value], times: Sequence[float]) -> Value:
    def value(part: ast.AST) -> Value:
        return _value(part, metrics, times)

    match tree:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name):
            return _metric(name, metrics)
        case ast.UnaryOp(op=ast.USub(), operand=part):
            return _combine(operator.sub, 0.0, value(part))
        case (
            ast.BinOp(left=left, op=sign, right=right)
            | ast.Compare(left=left, ops=[sign], comparators=[right])
        ) if type(sign) in OPERATORS:
            return _combine(OPERATORS[type(sign)], value(left), value(right))
        case ast.BoolOp(op=sign, values=parts):
            combine = functools.partial(_combine, OPERATORS[type(sign)])
            return functools.reduce(combine, map(value, parts))
        case ast.Call(func=ast.Name(id="IF"), args=[condition, then, otherwise]):
            return _choose(value(condition), value(then), value(otherwise))
        case ast.Call(func=ast.Name(id="FILL"), args=[series, number]):
            return _fill(value(series), value(number), times)
        case ast.Call(func=ast.Name(id="FLOOR"), args=[part]):
            return _combine(operator.floordiv, value(part), 1.0)
    raise MathError(f"the local cloud evaluates {KNOWN}, not {ast.unparse(tree)!r}")


def _metric(name: str, metrics: Mapping[str, Value]) -> Value:
    if name not in metrics:
        known = ", ".join(sorted(metrics)) or "none"
        raise MathError(f"unknown metric id {name!r}, known: {known}")
    return metrics[name]


def _combine(operation: Operation, left: Value, right: Value) -> Value:
    """Two series meet where both have data; a number meets every value of a series."""
    if not isinstance(left, Mapping) and not isinstance(right, Mapping):
        return float(operation(left, right))
    times = set(left) if isinstance(left, Mapping) else set(right)  # type: ignore[arg-type]
    results: dict[float, float] = {}
    for at in sorted(times):
        a, b = _at(left, at), _at(right, at)
        # CloudWatch shows no datapoint for a division by zero.
        if a is not None and b is not None and not (operation is operator.truediv and b == 0):
            results[at] = float(operation(a, b))
    return results


def _choose(condition: Value, then: Value, otherwise: Value) -> Value:
    """At each time the one or the other, where condition and choice have data."""
    if not isinstance(condition, Mapping):
        return then if condition != 0 else otherwise
    chosen = {at: _at(then if value != 0 else otherwise, at) for at, value in condition.items()}
    return {at: value for at, value in chosen.items() if value is not None}


def _fill(series: Value, number: Value, times: Sequence[float]) -> Value:
    if not isinstance(series, Mapping) or isinstance(number, Mapping):
        raise MathError("FILL takes a metric and the number that fills its gaps")
    return {at: series.get(at, number) for at in times}


def _at(value: Value, at: float) -> float | None:
    return value.get(at) if isinstance(value, Mapping) else value
