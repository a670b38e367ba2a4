"""GetMetricData's queries.

Statistics and expressions that refer to each other, computed over one span of time.
"""

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
    """What queries are answered over.

    `read` gives a question's series by a period in CloudWatch's seconds.

    `stretch` is how many real seconds one of CloudWatch's lasts: 1 for a person's question, less
    for an alarm's where time runs
    faster.
    """

    start: float
    end: float
    read: Read
    metrics: Callable[[], Sequence[Found]]
    stretch: float = 1.0

    def times(self, period: float) -> tuple[float, ...]:
        """The start of every period that lies within, if only with a part."""
        real = period * self.stretch
        first, last = (
            math.floor(self.start / real + ROUNDING),
            math.ceil(self.end / real - ROUNDING),
        )
        return tuple(number * real for number in range(first, last))


def evaluate_queries(queries: Sequence[Query], span: Span) -> dict[str, Value]:
    """Every query's value by its id. Raises MathError."""
    waiting = {str(query["Id"]): query for query in queries}
    if len(waiting) < len(queries):
        raise MathError("the ids of queries must differ")
    found: dict[str, Value] = {
        name: _statistic(query, span)
        for name, query in waiting.items()
        if not query.get("Expression")
    }
    pending = {name: query for name, query in waiting.items() if name not in found}
    period = _period([query for query in queries if not query.get("Expression")])
    while pending:
        ready = [
            name
            for name, query in pending.items()
            if not _required_ids(query, waiting) - set(found) - {name}
        ]
        if not ready:
            raise MathError(f"the expressions {', '.join(sorted(pending))} wait for each other")
        for name in ready:
            found[name] = _compute(pending.pop(name), found, span, period)
    return {name: found[name] for name in waiting}


def _required_ids(query: Query, known: Mapping[str, Query]) -> frozenset[str]:
    names = referenced_ids(parse(str(query["Expression"])))
    statistics = frozenset(name for name, other in known.items() if not other.get("Expression"))
    return (names - {"METRICS", "REPEAT", "LINEAR"}) & frozenset(known) | (
        statistics if "METRICS" in names else frozenset()
    )


def _statistic(query: Query, span: Span) -> Value:
    if query.get("MetricStat") is None:
        raise MathError(f"query {query['Id']} needs a MetricStat or an Expression")
    stat = query["MetricStat"]
    return span.read(question(stat), float(stat.get("Period") or DEFAULT_PERIOD))


def question(stat: Mapping[str, Any]) -> Question:
    """What a MetricStat asks for."""
    metric = stat["Metric"]
    return Question(
        namespace=str(metric.get("Namespace")),
        name=str(metric.get("MetricName")),
        statistic=str(stat.get("Stat") or "Average"),
        dimensions={
            dimension["Name"]: dimension.get("Value", "")
            for dimension in metric.get("Dimensions") or ()
        },
        unit=stat.get("Unit"),
    )


def _compute(query: Query, found: Mapping[str, Value], span: Span, period: float) -> Value:
    chosen = float(query.get("Period") or period)

    def search(text: str, statistic: str, searched: float) -> list[Series]:
        hits = matching(text, span.metrics())
        metrics_found = [
            Question(
                namespace=hit.namespace,
                name=hit.name,
                dimensions=hit.dimensions,
                statistic=statistic,
            )
            for hit in hits
        ]
        return [span.read(item, searched) for item in metrics_found]

    grounds = Grounds(metrics=found, times=span.times(chosen), period=chosen, search=search)
    return evaluate(str(query["Expression"]), grounds)


def _period(queries: Sequence[Query]) -> float:
    """An expression's period where it names none: the longest of its metrics'."""
    stats = [query["MetricStat"] for query in queries if query.get("MetricStat")]
    return max(
        (float(stat.get("Period") or DEFAULT_PERIOD) for stat in stats), default=DEFAULT_PERIOD
    )


SCHEMA = re.compile(r"\s*\{(?P<parts>[^}]*)\}(?P<terms>.*)", re.DOTALL)
TERM = re.compile(
    r"""\s*(?:(?P<key>:?[A-Za-z]\w*)\s*=\s*)?(?:"(?P<quoted>[^"]*)"|(?P<bare>[^\s"=()]+))"""
)


def matching(text: str, metrics: Iterable[Found]) -> list[Found]:
    """The metrics that a search text means. Raises MathError where it cannot be read."""
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
    found, at = [], 0
    while text[at:].strip():
        match = TERM.match(text, at)
        word = (
            None if match is None else (match["quoted"] if match["bare"] is None else match["bare"])
        )
        if match is None or word is None or word in ("OR", "NOT"):
            raise MathError(
                "the local cloud reads SEARCH terms that must all hold, found "
                f"{text[at:].strip()!r}"
            )
        if word != "AND" or match["key"]:
            found.append((match["key"], word))
        at = match.end()
    return found


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
