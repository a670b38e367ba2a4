"""GetMetricData's queries: statistics and expressions that refer to each other."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.cloudwatch.expression import Grounds, evaluate, parse, referenced_ids
from local_cloud.cloudwatch.series import Found, MathError, Question, Series, Value

Query = Mapping[str, Any]
Read = Callable[[Question, float], Series]
DEFAULT_PERIOD = 60.0
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Span:
    """A span of time; `read` returns a series by a period in CloudWatch's seconds.

    `stretch` is how many real seconds one of CloudWatch's lasts: below 1 where time runs faster.
    """

    start: float
    end: float
    read: Read
    metrics: Callable[[], Sequence[Found]]
    stretch: float = 1.0

    def times(self, period: float) -> tuple[float, ...]:
        """The start of every period that lies within, if only with a part."""
        real = period * self.stretch
        first = math.floor(self.start / real + ROUNDING)
        last = math.ceil(self.end / real - ROUNDING)
        return tuple(number * real for number in range(first, last))


def evaluate_queries(queries: Sequence[Query], span: Span) -> dict[str, Value]:
    """Return every query's value by its id. Raises MathError."""
    by_id = {str(query["Id"]): query for query in queries}
    if len(by_id) < len(queries):
        raise MathError("the ids of queries must differ")
    values: dict[str, Value] = {
        name: _statistic(query, span)
        for name, query in by_id.items()
        if not query.get("Expression")
    }
    # A statistic is computed already, so METRICS() waits for nothing.
    pending = {name: query for name, query in by_id.items() if name not in values}
    period = max((_period(by_id[name]["MetricStat"]) for name in values), default=DEFAULT_PERIOD)
    while pending:
        ready = [
            name
            for name, query in pending.items()
            if not referenced_ids(parse(str(query["Expression"]))) & set(pending) - {name}
        ]
        if not ready:
            raise MathError(f"the expressions {', '.join(sorted(pending))} wait for each other")
        for name in ready:
            values[name] = _compute(pending.pop(name), values, span, period)
    return {name: values[name] for name in by_id}


def _statistic(query: Query, span: Span) -> Value:
    stat = query.get("MetricStat")
    if stat is None:
        raise MathError(f"query {query['Id']} needs a MetricStat or an Expression")
    metric = stat["Metric"]
    dimensions = metric.get("Dimensions") or ()
    question = Question(
        namespace=str(metric.get("Namespace")),
        name=str(metric.get("MetricName")),
        statistic=str(stat.get("Stat") or "Average"),
        dimensions={item["Name"]: item.get("Value", "") for item in dimensions},
        unit=stat.get("Unit"),
    )
    return span.read(question, _period(stat))


def _period(stat: Query) -> float:
    return float(stat.get("Period") or DEFAULT_PERIOD)


def _compute(query: Query, values: Mapping[str, Value], span: Span, period: float) -> Value:
    chosen = float(query.get("Period") or period)

    def search(text: str, statistic: str, searched: float) -> list[Series]:
        questions = [
            Question(
                namespace=metric.namespace,
                name=metric.name,
                dimensions=metric.dimensions,
                statistic=statistic,
            )
            for metric in matching(text, span.metrics())
        ]
        return [span.read(question, searched) for question in questions]

    grounds = Grounds(metrics=values, times=span.times(chosen), period=chosen, search=search)
    return evaluate(str(query["Expression"]), grounds)


SCHEMA = re.compile(r"\s*\{(?P<parts>[^}]*)\}(?P<terms>.*)", re.DOTALL)
TERM = re.compile(
    r"""\s*(?:(?P<key>:?[A-Za-z]\w*)\s*=\s*)?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"=()]+))"""
)


def matching(text: str, metrics: Iterable[Found]) -> list[Found]:
    """Return the metrics that match a search text. Raises MathError where it cannot be read."""
    schema = SCHEMA.fullmatch(text)
    parts = [part.strip().strip('"') for part in schema["parts"].split(",")] if schema else []
    terms = _terms(schema["terms"] if schema else text)
    return [
        metric
        for metric in metrics
        if (
            not parts or (metric.namespace == parts[0] and set(metric.dimensions) == set(parts[1:]))
        )
        and all(_holds(key, word, metric) for key, word in terms)
    ]


def _terms(text: str) -> list[tuple[str | None, str]]:
    terms, at = [], 0
    while text[at:].strip():
        match = TERM.match(text, at)
        word = match and (match["quoted"] if match["bare"] is None else match["bare"])
        if match is None or word is None or word in ("OR", "NOT"):
            rest = text[at:].strip()
            raise MathError(
                f"the local cloud reads SEARCH terms that must all hold, found {rest!r}"
            )
        if word != "AND" or match["key"]:
            terms.append((match["key"], word))
        at = match.end()
    return terms


def _holds(key: str | None, word: str, metric: Found) -> bool:
    if key is None:
        return any(word in value for value in (metric.name, *metric.dimensions.values()))
    known = {
        "MetricName": metric.name,
        "Namespace": metric.namespace,
        ":aws.Namespace": metric.namespace,
        **metric.dimensions,
    }
    return known.get(key) == word
