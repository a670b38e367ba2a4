"""What can be asked of CloudWatch: a statistic of a metric, and the metrics that exist."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


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
