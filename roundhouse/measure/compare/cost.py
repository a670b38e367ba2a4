"""What a comparison costs at most, and what its best candidate costs against what is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from onboarding.prices import HOURS_A_MONTH, price, prices_date
from onboarding.values import Runtime
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.errors import AwsError
from roundhouse.gitops.build_estimates import build_estimate, build_preview
from roundhouse.measure.compare.cells import Cell
from roundhouse.measure.compare.document import Report
from roundhouse.measure.compare.result import CellResult, Row, ranked
from roundhouse.measure.compare.run import Run
from roundhouse.measure.compare.tree import cell_model
from roundhouse.measure.result import circumstances
from roundhouse.money import UNKNOWN, BreakEven, usd
from roundhouse.session import Session, open_session
from roundhouse.status.live import live_endpoint
from roundhouse.table import Table, table
from roundhouse.text import quantity

COLUMNS = ("candidate", "what is done", "build minutes", "build USD", "endpoint USD")
MINUTES = 20
"""Of an endpoint at most: to start, to be loaded, to wait for the others, to be deleted."""
RUNS = "what runs"


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


def cost_table(costs: Sequence[CellCost]) -> Table:
    """Return a row for each cell."""
    return table(COLUMNS, (cost.cells() for cost in costs), right=COLUMNS[2:])


def cell_costs(run: Run, cells: Sequence[Cell]) -> tuple[CellCost, ...]:
    """Return what each cell would take; nothing is built. Raises RoundhouseError, FaultsError."""
    names = [cell_model(run.subject, cell) for cell in run.prepare(cells)]
    requests = missing_engines(run.session, names) if names else ()
    found = (build_preview(run.session, request, like=run.subject.name) for request in requests)
    previews = {preview.model: preview for preview in found}

    def cost_of(cell: Cell) -> CellCost:
        known, row = run.results.get(cell.name), run.row(cell)
        if known is not None:
            return CellCost(name=cell.name, action="kept" if known.holds else known.reason)
        hourly = price(run.subject.region, "hosting", row.instance_type)
        preview = previews.get(row.model)
        return CellCost(
            name=cell.name,
            action="measure" if preview is None else "build and measure",
            is_measured=True,
            build_minutes=0.0 if preview is None else preview.minutes,
            build_usd=0.0 if preview is None else preview.usd,
            endpoint_usd=None if hourly is None else hourly * MINUTES / 60,
        )

    return tuple(map(cost_of, cells))


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


def break_even(
    rows: Sequence[Row], *, runtime: Runtime, running: float | None, build: float | None
) -> BreakEven | None:
    """Return the first row against the cheapest that holds in another runtime, else what runs.

    `rows` as ranked; `runtime`: the default one; `running`, `build`: USD a month, and USD of the
    first row's build. None where no row holds, the first is the baseline, or nothing else is known.
    """
    best = rows[0] if rows and rows[0].cell.holds else None
    baseline = next(
        (row for row in rows if row.cell.holds and row.cell.runtime not in (None, runtime)), None
    )
    if best is None or best is baseline or (baseline is None and running is None):
        return None
    against = RUNS if baseline is None else baseline.cell.name
    return BreakEven(
        name=f"{best.cell.name} instead of {against}",
        now=running if baseline is None else baseline.usd_a_month,
        candidate=best.usd_a_month,
        build=build,
    )


def running_usd(session: Session, model: str) -> float | None:
    """Return USD a month of the instances that a model's endpoint wants now.

    None where none is deployed, a price is not known, or the account cannot be read.
    """
    found = (
        item
        for item in session.deployments()
        if any(target.model.name == model for target in item.targets)
    )
    deployment = next(found, None)
    try:
        live = None if deployment is None else live_endpoint(session.clients, deployment)
    except AwsError:
        return None
    if live is None:
        return None
    hourly = 0.0
    for variant in live.variants:
        one = price(session.environment.region, "hosting", variant.instance_type)
        if one is None and variant.desired_instances:
            return None
        hourly += variant.desired_instances * (one or 0.0)
    return hourly * HOURS_A_MONTH


def built_usd(run: Run, model: str) -> float | None:
    """Return what the build of a cell's engine cost, by its time; None where it is not known.

    `model`: the name of the cell's own model file.
    """
    for deployment in run.session.deployments():
        for target in deployment.targets:
            if target.model.name == model and target.lock_entry is not None:
                entry, environment = target.lock_entry, run.session.environment
                return build_estimate(environment, target, entry).usd
    return None


def report_of(
    run: Run, results: Sequence[CellResult], demand: float | None, command: str
) -> Report:
    """Return a comparison's rows as ranked, with what the first costs against what is."""
    subject, where = run.subject, circumstances()
    region, safety = subject.region, subject.endpoint.scaling.safety_factor
    rows = ranked(
        Row(
            cell=cell,
            sizing=cell.sizing(demand, price(region, "hosting", cell.instance_type), safety),
        )
        for cell in results
    )
    report = Report(
        model=subject.name,
        environment=subject.environment,
        region=region,
        slo_ms=run.options.slo_ms,
        demand=demand,
        rows=rows,
        machine=where.machine,
        date=where.date,
        prices_date=prices_date(region, (row.cell.instance_type for row in rows)),
        command=command,
    )
    if report.best is None:
        return report
    session = open_session(run.paths, run.report, subject.environment)
    item = break_even(
        rows,
        runtime="tensorrt" if subject.is_gpu else "onnxruntime",
        running=running_usd(session, subject.name),
        build=built_usd(run, report.best.cell.model),
    )
    return replace(report, break_even=item)
