"""Rows of a graph's metrics: statistics, expressions over them, and searches over all variants of
an endpoint.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stacks.alarms.alarm import HOST, INVOCATIONS

Row = list[Any]
EACH_VARIANT = "${PROP('Dim.VariantName')}"
"""A label that CloudWatch fills in for each metric that a search finds."""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The variant whose metrics a graph shows; `word` begins its labels where several are shown."""

    endpoint: str
    variant: str
    word: str = ""

    def metric(self, namespace: str, name: str, stat: str, **options: Any) -> Row:
        """One statistic of one metric of the variant."""
        return [
            namespace,
            name,
            "EndpointName",
            self.endpoint,
            "VariantName",
            self.variant,
            {"stat": stat, **options},
        ]

    def invocations(self, name: str, stat: str, **options: Any) -> Row:
        """Of the requests that SageMaker passed on."""
        return self.metric(INVOCATIONS, name, stat, **options)

    def changed(
        self, metric: str, stat: str, change: str, *, label: str, names: tuple[str, str]
    ) -> list[Row]:
        """A statistic of the requests in another unit: itself, hidden, and what `change` makes of
        it; `names` are their ids.
        """
        return [
            self.invocations(metric, stat, **hidden(names[0])),
            computed(f"{names[0]} {change}", label, names[1]),
        ]

    def host(self, name: str, stat: str, **options: Any) -> Row:
        """Of the instances."""
        return self.metric(HOST, name, stat, **options)

    def label(self, text: str) -> str:
        """With the variant's word before it."""
        return f"{self.word} {text}".strip()


def computed(expression: str, label: str, name: str, **options: Any) -> Row:
    """One expression."""
    return [{"expression": expression, "label": label, "id": name, **options}]


def of_endpoint(endpoint: str, name: str, stat: str, **options: Any) -> Row:
    """A metric that is published of the endpoint as a whole: those of a queue."""
    return [INVOCATIONS, name, "EndpointName", endpoint, {"stat": stat, **options}]


def every_variant(endpoint: str, namespace: str, name: str, stat: str, change: str = "") -> Row:
    """A metric of every variant that has published it in the last two weeks; `change` is what is
    done to each value.
    """
    found = (
        f'{{{namespace},EndpointName,VariantName}} MetricName="{name}" EndpointName="{endpoint}"'
    )
    return computed(f"SEARCH('{found}', '{stat}', 60){change}", EACH_VARIANT, "variants")


def hidden(name: str) -> dict[str, Any]:
    """Options of a metric that only expressions use."""
    return {"id": name, "visible": False}
