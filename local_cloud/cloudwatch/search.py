"""SEARCH expressions of metric math: which metrics a search text means; pure.

A text is a schema in braces and terms that must all hold: `{AWS/SageMaker,EndpointName,VariantName}
MetricName="Invocations"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from local_cloud.cloudwatch.question import Found
from local_cloud.cloudwatch.series import MathError

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
                f"the local cloud reads SEARCH terms that must all hold, found {text[at:].strip()!r}"
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
