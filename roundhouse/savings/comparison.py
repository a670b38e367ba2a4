"""What the best candidate of a comparison saves: against a baseline of the grid, or what runs."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.deployment import Deployment
from onboarding.prices import price
from onboarding.values import Runtime
from roundhouse.compare.result import Row
from roundhouse.compare.run import Run
from roundhouse.errors import AwsError
from roundhouse.gitops.build_estimates import compile_estimate
from roundhouse.savings.environment import present_fleet
from roundhouse.savings.investment import Fleet, Instances, Investment
from roundhouse.session import Session


def baseline_of(rows: Sequence[Row], runtime: Runtime) -> Row | None:
    """Return the cheapest row that holds the SLO in another runtime than the default one.

    `rows` as ranked.
    """
    return next(
        (row for row in rows if row.cell.holds and row.cell.runtime not in (None, runtime)), None
    )


def comparison_investment(
    name: str,
    rows: Sequence[Row],
    region: str,
    *,
    runtime: Runtime,
    present: Fleet | None,
    build_usd: float | None,
    note: str = "",
) -> Investment | None:
    """Return the first row against the grid's baseline, else against what runs.

    None where no row holds the SLO, or the first is the baseline itself. `runtime`: the default.
    """
    best = rows[0] if rows and rows[0].cell.holds else None
    if best is None:
        return None
    baseline = baseline_of(rows, runtime)
    if baseline is best:
        return None
    if baseline is not None:
        present, note = row_fleet(baseline, region), ""
    return Investment(
        name=f"{name}: {best.cell.name}",
        present=present,
        proposed=row_fleet(best, region),
        build_usd=build_usd,
        note=note,
    )


def row_fleet(row: Row, region: str) -> Fleet:
    """Return the instances of a row."""
    group = Instances(
        instance_type=row.cell.instance_type,
        count=None if row.sizing is None else row.sizing.instances,
        usd_an_hour=price(region, "hosting", row.cell.instance_type),
    )
    return Fleet(groups=(group,), origin=row.cell.name)


def running_fleet(session: Session, model: str) -> tuple[Fleet | None, str]:
    """Return what runs of a model's endpoint, or a note why that is not known."""
    deployment = next(
        (
            item
            for item in session.deployments()
            if any(target.model.name == model for target in item.targets)
        ),
        None,
    )
    if deployment is None:
        return None, ""
    try:
        return present_fleet(session, deployment), ""
    except AwsError as error:
        return None, str(error)


def built_usd(run: Run, model: str) -> float | None:
    """Return what the build of a cell's engine cost, by its time; None where it is not known.

    `model`: the name of the cell's own model file.
    """
    deployments: tuple[Deployment, ...] = run.session.deployments()
    for deployment in deployments:
        for target in deployment.targets:
            if target.model.name == model and target.lock_entry is not None:
                entry, environment = target.lock_entry, run.session.environment
                return compile_estimate(environment, target, entry, None).usd
    return None
