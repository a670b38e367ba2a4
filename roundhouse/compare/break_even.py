"""What the best candidate costs against a baseline of the grid, or against what runs."""

from __future__ import annotations

from collections.abc import Sequence

from onboarding.prices import HOURS_A_MONTH, price
from onboarding.values import Runtime
from roundhouse.compare.result import Row
from roundhouse.compare.run import Run
from roundhouse.errors import AwsError
from roundhouse.gitops.build_estimates import build_estimate
from roundhouse.money import BreakEven
from roundhouse.session import Session
from roundhouse.status.live import live_endpoint

RUNS = "what runs"


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
        now=running if baseline is None else _usd_a_month(baseline),
        candidate=_usd_a_month(best),
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
        live = None if deployment is None else live_endpoint(session.clients, deployment, {})
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


def _usd_a_month(row: Row) -> float | None:
    return None if row.sizing is None else row.sizing.usd_a_month
