"""Compares every cell of a grid."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from roundhouse.compare.cells import Cell
from roundhouse.compare.result import CellResult, State
from roundhouse.compare.run import CompareOptions, Control, Measure, Run
from roundhouse.compare.tree import Subject
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.knee import HOLD_SECONDS, Knee, KneeSearch
from roundhouse.load_test.options import LoadOptions
from roundhouse.load_test.subject import load_test, require_answer
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session, open_session

GPU_HOLD_SECONDS = 150.0
"""A whole minute of metrics lies in it, wherever in a minute it begins."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The cells of a run, in the order they were given."""

    results: tuple[CellResult, ...]
    controls: tuple[Control, ...] = ()


def open_run(
    paths: Paths,
    report: Report,
    subject: Subject,
    options: CompareOptions,
    *,
    measure: Measure | None = None,
) -> Run:
    """Return a run with nothing prepared. Raises RoundhouseError."""
    folder = paths.build / "compare" / subject.environment / subject.name
    return Run(
        paths=paths,
        report=report,
        session=open_session(paths, report, subject.environment),
        subject=subject,
        options=options,
        folder=folder,
        measure=measure_knee if measure is None else measure,
    )


def measure_knee(session: Session, model: str, options: CompareOptions) -> Knee:
    """Load an endpoint of the environment and return its knee. Raises RoundhouseError."""
    import uvloop

    load = LoadOptions(
        endpoint=model,
        env=session.environment.name,
        slo=f"{options.slo_ms:.6f}",
        warm_up=2.0,
        input=options.input,
        rows=options.rows_per_request,
    )
    test = load_test(session.paths, session.report, load)
    asyncio.run(require_answer(test))
    deployment = next(item for item in session.deployments() if item.name == model)
    is_metered = deployment.instance_type.is_gpu and not session.is_local
    search = KneeSearch(test=test, hold_seconds=GPU_HOLD_SECONDS if is_metered else HOLD_SECONDS)
    knee: Knee = uvloop.run(search.run())
    return knee


def run_comparison(run: Run, cells: Sequence[Cell]) -> Comparison:
    """Measure every cell and delete its endpoint. Raises RoundhouseError before anything is built.

    A cell that cannot be built, deployed or loaded is a row with its reason.
    """
    left = run.prepare(cells)
    require_possible(run, cells)
    try:
        run.measure_all(left, has_control=True)
    finally:
        run.clean_up()
    results = tuple(run.results[cell.name] for cell in cells)
    return Comparison(results=results, controls=tuple(run.controls))


def require_possible(run: Run, cells: Sequence[Cell]) -> None:
    """Raise RoundhouseError where `check` refuses every cell: there is nothing to build."""
    states = [run.results.get(cell.name) for cell in cells]
    refused = [result for result in states if result and result.state is State.refused]
    if len(refused) == len(cells):
        first = refused[0]
        raise RoundhouseError(
            f"{run.subject.name}: `check` refuses every candidate, so nothing is built; "
            f"{first.name}: {first.reason}"
        )
