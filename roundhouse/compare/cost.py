"""What a comparison would build, and cost at most: `roundhouse compare --dry-run`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.prices import price
from roundhouse.compare.cells import Cell
from roundhouse.compare.comparison import CompareOptions, open_run
from roundhouse.compare.tree import Subject, cell_model
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.gitops.build_preview import build_preview
from roundhouse.paths import Paths
from roundhouse.report import Report
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
    build_minutes: float | None = 0.0
    build_usd: float | None = 0.0
    endpoint_usd: float | None = 0.0

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table."""
        numbers = (self.build_minutes, self.build_usd, self.endpoint_usd)
        texts = ("unknown" if value is None else f"{value:.2f}" for value in numbers)
        return self.name, self.action, *texts


def cell_costs(
    paths: Paths,
    report: Report,
    subject: Subject,
    cells: Sequence[Cell],
    options: CompareOptions,
) -> tuple[CellCost, ...]:
    """Return what each cell would take; nothing is built. Raises RoundhouseError, FaultsError."""
    run, left = open_run(paths, report, subject, cells, options)
    names = [cell_model(subject, cell) for cell in left]
    previews = {
        preview.model: preview
        for preview in (
            build_preview(run.session, request)
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
                build_minutes=0.0 if preview is None else preview.minutes,
                build_usd=0.0 if preview is None else preview.usd,
                endpoint_usd=None if hourly is None else hourly * MINUTES / 60,
            )
        )
    return tuple(costs)


def total_sentence(costs: Sequence[CellCost]) -> str:
    """Return the sum in one sentence."""
    known = [(cost.build_usd, cost.endpoint_usd) for cost in costs]
    cells = quantity(len(costs), "cell")
    if any(None in pair for pair in known):
        return f"{cells}; the cost is not known, since a price or the time of a build is not."
    total = sum((build or 0.0) + (endpoint or 0.0) for build, endpoint in known)
    return f"{cells}, at most {total:,.2f} USD with {MINUTES} minutes of an endpoint each."
