"""Builds of a comparison, and its highest cost: `roundhouse compare --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.prices import price
from roundhouse.compare.cells import Cell
from roundhouse.compare.run import Run
from roundhouse.compare.tree import cell_model
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.gitops.build_estimates import build_preview
from roundhouse.money import UNKNOWN, usd
from roundhouse.text import quantity

COLUMNS = ("candidate", "what is done", "build minutes", "build USD", "endpoint USD")
RIGHT = COLUMNS[2:]
MINUTES = 20
"""Of an endpoint at most: to start, to be loaded, to wait for the others, to be deleted."""


@dataclass(frozen=True, kw_only=True)
class CellCost:
    """One cell; None: not known."""

    name: str
    action: str
    is_measured: bool = False
    build_minutes: float | None = 0.0
    build_usd: float | None = 0.0
    endpoint_usd: float | None = 0.0

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table."""
        minutes = UNKNOWN if self.build_minutes is None else f"{self.build_minutes:.2f}"
        return self.name, self.action, minutes, usd(self.build_usd), usd(self.endpoint_usd)


def cell_costs(run: Run, cells: Sequence[Cell]) -> tuple[CellCost, ...]:
    """Return what each cell would take; nothing is built. Raises RoundhouseError, FaultsError."""
    subject, left = run.subject, run.prepare(cells)
    names = [cell_model(subject, cell) for cell in left]
    previews = {
        preview.model: preview
        for preview in (
            build_preview(run.session, request, like=subject.name)
            for request in (missing_engines(run.session, names) if names else ())
        )
    }
    costs = []
    for cell in cells:
        known = run.results.get(cell.name)
        if known is not None:
            costs.append(
                CellCost(name=cell.name, action=known.reason if not known.holds else "kept")
            )
            continue
        row = run.row(cell)
        hourly = price(subject.region, "hosting", row.instance_type)
        preview = previews.get(row.model)
        costs.append(
            CellCost(
                name=cell.name,
                action="measure" if preview is None else "build and measure",
                is_measured=True,
                build_minutes=0.0 if preview is None else preview.minutes,
                build_usd=0.0 if preview is None else preview.usd,
                endpoint_usd=None if hourly is None else hourly * MINUTES / 60,
            )
        )
    return tuple(costs)


def total_sentence(costs: Sequence[CellCost]) -> str:
    """Return the sum in one sentence."""
    built = [cost for cost in costs if cost.is_measured]
    cells, hours = quantity(len(built), "cell"), len(built) * MINUTES / 60
    if not built:
        return f"{quantity(len(costs), 'cell')}, none of which is to be measured: 0 USD."
    known = [
        cost.build_usd + cost.endpoint_usd
        for cost in built
        if cost.build_usd is not None and cost.endpoint_usd is not None
    ]
    if len(known) < len(built):
        return (
            f"{cells} to measure, at most {hours:.1f} hours of an instance; the cost is not known, "
            "since the price of an instance or the time of a build is not (`make prices` "
            "writes prices)."
        )
    total = sum(known)
    return f"{cells} to measure, at most {usd(total)} USD with {MINUTES} minutes of each endpoint."
