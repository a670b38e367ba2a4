"""What a comparison costs at most, and its rows as ranked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from onboarding.deployment import Deployment
from onboarding.prices import price, prices_date
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.gitops.build_estimates import build_preview
from roundhouse.gitops.plan_document import EnginePrediction
from roundhouse.gitops.predictions import (
    engine_predictions,
    errors_sentence,
    known_engines,
    predictions_table,
)
from roundhouse.measure.compare.cells import Cell
from roundhouse.measure.compare.result import CellResult, Report, ranked
from roundhouse.measure.compare.run import Run
from roundhouse.measure.compare.tree import Subject, cell_model
from roundhouse.measure.result import circumstances
from roundhouse.table import Table
from roundhouse.text import UNKNOWN, quantity, usd

COLUMNS = ("candidate", "what is done", "build minutes", "build USD", "endpoint USD")
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
    predictions: tuple[EnginePrediction, ...] = ()
    """Of an engine that is not built, by one that was measured; none where none is near."""

    def cells(self) -> tuple[str, ...]:
        """Return the row of a table."""
        minutes = UNKNOWN if self.build_minutes is None else f"{self.build_minutes:.2f}"
        return self.name, self.action, minutes, usd(self.build_usd), usd(self.endpoint_usd)


def predictions_of(costs: Sequence[CellCost]) -> tuple[Table, str] | None:
    """Return the predictions, and how far such ones were off in a sentence; None: there is none."""
    rows = [(cost.name, item) for cost in costs for item in cost.predictions]
    return (predictions_table(rows), errors_sentence()) if rows else None


def cell_costs(run: Run, cells: Sequence[Cell]) -> tuple[CellCost, ...]:
    """Return what each cell would take; nothing is built. Raises RoundhouseError, FaultsError."""
    names = [cell_model(run.subject, cell) for cell in run.prepare(cells)]
    requests = missing_engines(run.session, names) if names else ()
    found = (build_preview(run.session, request, like=run.subject.name) for request in requests)
    previews = {preview.model: preview for preview in found}
    root, deployments = run.session.paths.tree, run.session.deployments()
    predictions = cell_predictions(root, run.subject, deployments)

    def cost_of(cell: Cell) -> CellCost:
        known, row = run.results.get(cell.name), run.row(cell)
        if known is not None:
            return CellCost(name=cell.name, action=known.reason)
        hourly = price(run.subject.region, "hosting", row.instance_type)
        preview = previews.get(row.model)
        return CellCost(
            name=cell.name,
            action="measure" if preview is None else "build and measure",
            is_measured=True,
            build_minutes=0.0 if preview is None else preview.minutes,
            build_usd=0.0 if preview is None else preview.usd,
            endpoint_usd=None if hourly is None else hourly * MINUTES / 60,
            predictions=predictions.get(row.model, ()),
        )

    return tuple(map(cost_of, cells))


def cell_predictions(
    root: Path, subject: Subject, deployments: Iterable[Deployment]
) -> dict[str, tuple[EnginePrediction, ...]]:
    """Return what is predicted of the engine of each model of an environment, by its name.

    `root`: the tree's folder, which checkpoints lie in.
    """
    targets = [target for item in deployments for target in item.targets]
    engines = known_engines(root, targets)
    locks = (item.lock_entry for item in targets if item.model.name == subject.name)
    last = next(locks, None)
    return {
        item.model.name: engine_predictions(root, subject.region, item, last, engines)
        for item in targets
    }


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


def report_of(
    run: Run, results: Sequence[CellResult], demand: float | None, command: str
) -> Report:
    """Return a comparison's rows as ranked, for a demand in requests a second."""
    subject, where = run.subject, circumstances()
    region, safety = subject.region, subject.endpoint.scaling.safety_factor
    rows = ranked(
        cell.sized(demand, price(region, "hosting", cell.instance_type), safety) for cell in results
    )
    return Report(
        model=subject.name,
        environment=subject.environment,
        region=region,
        slo_ms=run.options.slo_ms,
        demand=demand,
        rows=rows,
        machine=where.machine,
        date=where.date,
        prices_date=prices_date(region, (row.instance_type for row in rows)),
        command=command,
    )
