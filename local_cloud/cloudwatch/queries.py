"""GetMetricData's queries: statistics and expressions that refer to each other, computed over one
span of time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from local_cloud.cloudwatch.expression import Grounds, computed, named, parsed
from local_cloud.cloudwatch.question import Found, Question
from local_cloud.cloudwatch.search import matching
from local_cloud.cloudwatch.series import MathError, Series, Value

Query = Mapping[str, Any]
Read = Callable[[Question, float], Series]
DEFAULT_PERIOD = 60.0
ROUNDING = 1e-6


@dataclass(frozen=True, kw_only=True)
class Span:
    """What queries are answered over. `read` gives a question's series by a period in CloudWatch's
    seconds.

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


def answered(queries: Sequence[Query], span: Span) -> dict[str, Value]:
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
            if not _needed(query, waiting) - set(found) - {name}
        ]
        if not ready:
            raise MathError(f"the expressions {', '.join(sorted(pending))} wait for each other")
        for name in ready:
            found[name] = _computed(pending.pop(name), found, span, period)
    return {name: found[name] for name in waiting}


def _needed(query: Query, known: Mapping[str, Query]) -> frozenset[str]:
    names = named(parsed(str(query["Expression"])))
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
        dimensions={each["Name"]: each.get("Value", "") for each in metric.get("Dimensions") or ()},
        unit=stat.get("Unit"),
    )


def _computed(query: Query, found: Mapping[str, Value], span: Span, period: float) -> Value:
    chosen = float(query.get("Period") or period)

    def search(text: str, statistic: str, searched: float) -> list[Series]:
        hits = matching(text, span.metrics())
        asked = [
            Question(
                namespace=hit.namespace,
                name=hit.name,
                dimensions=hit.dimensions,
                statistic=statistic,
            )
            for hit in hits
        ]
        return [span.read(each, searched) for each in asked]

    grounds = Grounds(metrics=found, times=span.times(chosen), period=chosen, search=search)
    return computed(str(query["Expression"]), grounds)


def _period(queries: Sequence[Query]) -> float:
    """An expression's period where it names none: the longest of its metrics'."""
    stats = [query["MetricStat"] for query in queries if query.get("MetricStat")]
    return max(
        (float(stat.get("Period") or DEFAULT_PERIOD) for stat in stats), default=DEFAULT_PERIOD
    )
