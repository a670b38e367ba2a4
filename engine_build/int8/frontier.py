"""Accuracy against the share of INT8 work: points that a search measured, and the choice among
them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from onboarding.manifest import AccuracyRecord


@dataclass(frozen=True, kw_only=True)
class Point:
    """Some layers in INT8, and how well the network answers then."""

    int8: tuple[str, ...]
    """Nodes, in graph order."""
    share: float
    """Of all multiply-accumulates."""
    accuracy: AccuracyRecord

    @property
    def holds(self) -> bool:
        """True inside the budget."""
        return holds(self.accuracy)

    def facts(self, *, chosen: bool, split: str = "search") -> dict[str, Any]:
        """As JSON: share, mean, worst, nearest_neighbour_agreement, split, holds, int8_layers (a
        number), chosen.
        """
        return {
            "share": round(self.share, 4),
            "mean": self.accuracy.mean,
            "worst": self.accuracy.worst,
            "nearest_neighbour_agreement": self.accuracy.nearest_neighbour_agreement,
            "split": split,
            "holds": self.holds,
            "int8_layers": len(self.int8),
            "chosen": chosen,
        }


def holds(record: AccuracyRecord) -> bool:
    """True inside the budget, the lower end of the mean's interval included: other samples are to
    judge it later.
    """
    lowest = record.mean if record.mean_interval is None else record.mean_interval[0]
    return lowest >= record.budget_mean and (
        record.budget_worst is None or record.worst >= record.budget_worst
    )


def by_share(points: Sequence[Point]) -> tuple[Point, ...]:
    """The largest share of INT8 work first."""
    return tuple(sorted(points, key=lambda point: -point.share))


def choice(points: Sequence[Point]) -> Point:
    """The largest share inside the budget; where none is, the best mean, for the verify step to
    refuse with its numbers.
    """
    holding = [point for point in by_share(points) if point.holds]
    return holding[0] if holding else max(points, key=lambda point: point.accuracy.mean)


def table(points: Sequence[Point], chosen: Point | None = None) -> str:
    """Plain text, a point a line."""
    lines = [f"{'INT8 share':>10}  {'layers':>6}  {'mean':>8}  {'worst':>8}  {'nearest':>7}"]
    for point in by_share(points):
        record, mark = point.accuracy, "  <- chosen" if point is chosen else ""
        agreement = record.nearest_neighbour_agreement
        nearest = f"{'-' if agreement is None else format(agreement, '.3f'):>7}"
        lines.append(
            f"{point.share:10.1%}  {len(point.int8):6}  {record.mean:8.5f}  {record.worst:8.5f}  {nearest}{mark}"
        )
    return "\n".join(lines)
