"""Compares every cell of a grid, or searches it within a budget of cells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onboarding.prices import price
from roundhouse.compare.cells import MOST_CELLS, ORDERED_AXES, Cell
from roundhouse.compare.result import CellResult, State
from roundhouse.compare.run import CompareOptions, Control, Measure, Run, batched
from roundhouse.compare.search import Grid, Point, QuickSearch, Score
from roundhouse.compare.tree import Subject, file_values
from roundhouse.errors import RoundhouseError
from roundhouse.load_test.knee import HOLD_SECONDS, Knee, KneeSearch
from roundhouse.load_test.options import LoadOptions
from roundhouse.load_test.subject import load_test, require_answer
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session, open_session

GPU_HOLD_SECONDS = 150.0
"""A whole minute of metrics lies in it, wherever in a minute it begins."""
NOTHING: Score = (False, float("-inf"))
"""The score of a cell of which nothing was measured."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The cells of a run, in the order they were given or searched in; `grid`: those there are."""

    results: tuple[CellResult, ...]
    grid: int
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
    return Comparison(results=results, grid=len(cells), controls=tuple(run.controls))


def run_search(run: Run, cells: Sequence[Cell], budget: int) -> Comparison:
    """Measure at most `budget` cells of a grid, from the model file's own values on.

    Cells that an earlier run measured count, so that a search that was stopped goes on as it would
    have. Raises RoundhouseError where `check` refuses all of them.
    """
    by_name = {cell.name: cell for cell in cells}
    order: list[str] = []

    def measure(names: Sequence[str]) -> Mapping[str, Score]:
        group = [by_name[name] for name in names]
        left = run.prepare(group)
        order.extend(names)
        run.measure_all(left, has_control=not run.controls)
        run.report.print(f"– Searched: {len(order)} of at most {budget} cells")
        return {name: score(run.results[name], prices) for name in names}

    types = {run.row(cell).instance_type for cell in cells}
    hourly = {name: price(run.subject.region, "hosting", name) for name in types}
    prices = {name: usd for name, usd in hourly.items() if usd is not None}
    prices = prices if len(prices) == len(types) else {}
    grid, start = search_grid(cells, file_values(run.subject))
    try:
        QuickSearch(grid=grid, budget=budget, measure=measure).run(start)
    finally:
        run.clean_up()
    require_possible(run, [by_name[name] for name in order])
    results = tuple(run.results[name] for name in order)
    return Comparison(results=results, grid=len(cells), controls=tuple(run.controls))


def search_grid(cells: Sequence[Cell], start: Mapping[str, str]) -> tuple[Grid, Point]:
    """Return cells as points of a grid, and the point of the values where a search begins.

    An axis that a cell lacks, such as the largest batch of one that batches nothing, has every
    value there.
    """
    axes: dict[str, list[str]] = {}
    for cell in cells:
        for axis, value in cell.values:
            if value not in axes.setdefault(axis, []):
                axes[axis].append(value)
    for axis in ORDERED_AXES:
        if axis in axes and axis != "batching":
            axes[axis].sort(key=int)
    names: dict[Point, str] = {}
    for cell in cells:
        for point in _points(dict(cell.values), axes):
            names[point] = cell.name
    grid = Grid(
        sizes=tuple(map(len, axes.values())),
        is_ordered=tuple(axis in ORDERED_AXES for axis in axes),
        names=names,
    )
    places = [
        values.index(start[axis]) if start.get(axis) in values else 0
        for axis, values in axes.items()
    ]
    return grid, tuple(places)


def _points(values: Mapping[str, str], axes: Mapping[str, Sequence[str]]) -> list[Point]:
    points: list[Point] = [()]
    for axis, known in axes.items():
        places = [known.index(values[axis])] if axis in values else range(len(known))
        points = [(*point, place) for point in points for place in places]
    return points


def score(result: CellResult, prices: Mapping[str, float]) -> Score:
    """Return how well a cell does: requests a second for each USD an hour, within the SLO.

    `prices`: of every instance type; none where one of them is not known, and the rate alone
    counts. Where nothing holds, it is the p99 of one user, negative.
    """
    if result.knee is None:
        return NOTHING
    if result.rate is None:
        late = result.knee.p99_ms or result.knee.p95_ms or result.knee.p50_ms
        return NOTHING if late is None else (False, -late)
    return True, result.rate / prices.get(result.instance_type, 1.0)


def require_possible(run: Run, cells: Sequence[Cell], others: Sequence[Cell] = ()) -> None:
    """Raise RoundhouseError where `check` refuses every cell: there is nothing to build.

    `others`: cells of which one may be possible where none of `cells` is.
    """
    states = [run.results.get(cell.name) for cell in cells]
    refused = [result for result in states if result and result.state is State.refused]
    if len(refused) == len(cells) and not _has_possible(run, others):
        first = refused[0]
        raise RoundhouseError(
            f"{run.subject.name}: `check` refuses every candidate, so nothing is built; "
            f"{first.name}: {first.reason}"
        )


def _has_possible(run: Run, cells: Sequence[Cell]) -> bool:
    """Return whether `check` takes one of some cells, the first ones looked at first."""
    for group in batched(cells, MOST_CELLS):
        if run.prepare(group):
            return True
        if any(run.results[cell.name].state is not State.refused for cell in group):
            return True
    return False
