"""One comparison under way: it deploys cells as production would, loads each, and deletes them.

Cells are endpoints of one instance in the environment itself, so that its images, roles and store
of engines serve them, and what was built for the winner is not built again. A cell that fails is a
row with its reason. The endpoints are deleted at the end, and engines stay in the store.
"""

from __future__ import annotations

import datetime
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from onboarding.names import endpoint_name
from roundhouse import interruption
from roundhouse.aws.clients import calling
from roundhouse.deploy.builds.requests import EnginesNotBuiltError
from roundhouse.deploy.deployment import DeployOptions, deploy
from roundhouse.deploy.destroy import EVERY_SECONDS, delete_stacks, deployed_endpoints, is_changing
from roundhouse.deploy.stacks import StackSummary
from roundhouse.errors import AwsError, RoundhouseError
from roundhouse.measure.compare.cells import Cell
from roundhouse.measure.compare.result import (
    CellResult,
    Knee,
    State,
    with_engine,
)
from roundhouse.measure.compare.tree import (
    Subject,
    cell_document,
    cell_model,
    is_cell_model,
    write_tree,
)
from roundhouse.measure.measurement import Measurement, Outcome, Verdict, proven_percentile
from roundhouse.measure.options import LoadOptions
from roundhouse.measure.runner import EngineRunner, NextLoad
from roundhouse.measure.slo import Slo, lower_load
from roundhouse.measure.subject import engine_test
from roundhouse.paths import Paths
from roundhouse.report import Report
from roundhouse.session import Session, open_session

IN_SERVICE = "InService"
DEPLOYMENT = DeployOptions(yes=True, concurrency=4, rebuild_gone=True, allow_dirty=True)
HOLD_SECONDS, LONGEST_SECONDS = 6.0, 900.0
"""Of a rate, and of a search with all that belongs to it."""
Measure = Callable[[Session, str, "CompareOptions"], Knee]


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """How cells are measured.

    `at_once`: endpoints that are deployed together. `input`: as of a load test; None: the model's
    accuracy dataset.
    """

    slo_ms: float
    at_once: int = 12
    input: Path | None = None
    rows_per_request: int = 1


@dataclass(kw_only=True)
class Run:
    """One comparison under way."""

    paths: Paths
    """Of the tree that the model is in; the session's are those of the cells' tree."""
    report: Report
    session: Session
    subject: Subject
    options: CompareOptions
    folder: Path
    measure: Measure
    results: dict[str, CellResult] = field(default_factory=dict)

    def prepare(self, cells: Sequence[Cell]) -> list[Cell]:
        """Write the tree of cells; return those that `check` takes. Raises FaultsError."""
        own, refused = write_tree(
            self.paths, self.folder / "tree", self.subject, cells, self.options.slo_ms
        )
        environment, run = self.subject.environment, self.session.run
        self.session = open_session(own, self.report, environment, run)
        for cell in cells:
            if cell.name in refused:
                self.fail(cell, State.refused, refused[cell.name])
        return [cell for cell in cells if cell.name not in refused]

    def measure_all(self, cells: Sequence[Cell]) -> None:
        """Measure cells, as many together as the options allow, and delete their endpoints."""
        for start in range(0, len(cells), self.options.at_once):
            self._measure_group(cells[start : start + self.options.at_once])
            delete_endpoints(self.session, self.subject)

    def clean_up(self) -> None:
        """Delete the endpoints that stand, after Ctrl-C too; a second one ends the deletion."""
        if interruption.is_requested():
            self.report.print(
                "– Stopped: the endpoints are deleted now. Where that is stopped too, `--clean` or "
                "the next run deletes them."
            )
        unchecked = replace(self.report, check=lambda: None)
        delete_endpoints(replace(self.session, report=unchecked), self.subject)

    def _measure_group(self, group: Sequence[Cell]) -> None:
        """Deploy, load and record cells that stand at the same time, in a random order."""
        session = self._of(group)
        order = sorted(self._deploy(session, group), key=lambda cell: cell.name)
        random.Random(1).shuffle(order)
        for cell in order:
            self._measure(session, cell)

    def _of(self, group: Sequence[Cell]) -> Session:
        return replace(
            self.session, endpoints=tuple(cell_model(self.subject, cell) for cell in group)
        )

    def _deploy(self, session: Session, group: Sequence[Cell]) -> list[Cell]:
        """Return the cells whose endpoints answer; the others' reasons are recorded."""
        reasons: dict[str, str] = {}
        built: dict[str, str] = {}
        try:
            deploy(session, DEPLOYMENT)
        except EnginesNotBuiltError as error:
            built = {failure.model: failure.reason for failure in error.failures}
        except RoundhouseError as error:
            reasons = self._deploy_singly(group, " ".join(str(error).split()))
        answering = []
        for cell in group:
            model = cell_model(self.subject, cell)
            if model in built:
                self.fail(cell, State.not_built, " ".join(built[model].split()))
            elif self._is_in_service(model):
                answering.append(cell)
            else:
                reason = reasons.get(cell.name, "its endpoint is not InService")
                self.fail(cell, State.not_deployed, reason)
        return answering

    def _deploy_singly(self, group: Sequence[Cell], reason: str) -> dict[str, str]:
        """Deploy what does not answer one at a time, so that one failure is one row's."""
        if len(group) == 1:
            return {group[0].name: reason}
        reasons = {}
        for cell in group:
            if self._is_in_service(cell_model(self.subject, cell)):
                continue
            try:
                deploy(self._of([cell]), DEPLOYMENT)
            except RoundhouseError as error:
                reasons[cell.name] = " ".join(str(error).split())
        return reasons

    def _is_in_service(self, model: str) -> bool:
        name = endpoint_name(self.session.environment, model)
        try:
            with calling(f"Endpoint {name}"):
                shown = self.session.clients("sagemaker").describe_endpoint(EndpointName=name)
        except AwsError:
            return False
        return bool(shown["EndpointStatus"] == IN_SERVICE)

    def _measure(self, session: Session, cell: Cell) -> None:
        model = cell_model(self.subject, cell)
        deployment = next(item for item in session.deployments() if item.name == model)
        target = deployment.targets[0]
        result = self.row(cell, State.failed)
        if target.lock_entry is not None:
            result = with_engine(result, target.lock_entry)
        try:
            with session.report.step(f"Load on {cell.name}") as step:
                begin = datetime.datetime.now(datetime.UTC)
                knee = self.measure(session, model, self.options)
                held = "nothing" if knee.rate is None else f"{knee.rate:,.1f} requests/s"
                step.finish(f"{held} within {self.options.slo_ms:g} ms")
        except RoundhouseError as error:
            self.results[cell.name] = replace(result, reason=" ".join(str(error).split()))
            return
        self.results[cell.name] = replace(
            result,
            state=State.measured,
            reason=knee.reason,
            knee=knee,
            date=begin.strftime("%Y-%m-%d %H:%M UTC"),
        )

    def row(self, cell: Cell, state: State = State.failed, reason: str = "") -> CellResult:
        """Return a cell's row with no measurement."""
        document = cell_document(self.subject, cell, self.options.slo_ms)
        return CellResult(
            name=cell.name,
            values=cell.values,
            model=document["name"],
            instance_type=document["endpoint"]["instance_type"],
            state=state,
            reason=reason,
        )

    def fail(self, cell: Cell, state: State, reason: str) -> None:
        """Record why a cell has no measurement."""
        self.results[cell.name] = self.row(cell, state, reason)


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


@dataclass(kw_only=True)
class KneeRunner(EngineRunner):
    """Half a minute of load on one candidate of many: the first rate that holds, once, counts."""

    next_load: NextLoad = lower_load
    step_seconds: float = HOLD_SECONDS
    longest_step_seconds: float = 16.0

    def judge(self, measurement: Measurement, slo: Slo) -> Verdict:
        """Return whether a phase held the SLO; too few answers for p99 are judged by p95.

        So slow a server gets no minute of load.
        """
        found = super().judge(measurement, slo)
        is_few = found.outcome is Outcome.unproven
        if is_few and self.is_within(measurement):
            return replace(found, outcome=Outcome.held)
        return found

    def knee(self) -> Knee:
        """Return what the load came to."""
        best, last = self.best_level, self.phases[-1]
        held = last if last.verdict and last.verdict.outcome is Outcome.held else None
        reason = self.level_end
        if best is not None and held is None:
            reason = f"no rate was held: {'' if last.verdict is None else last.verdict.reason}"
        shown = self.levels[0] if held is None else held
        p50, p95, p99 = (proven_percentile(shown.latency, percent) for percent in (50, 95, 99))
        return Knee(
            rate=None if held is None else held.phase.start,
            reason=reason,
            p50_ms=p50,
            p95_ms=p95,
            p99_ms=p99,
        )


def measure_knee(session: Session, model: str, options: CompareOptions) -> Knee:
    """Load an endpoint of the environment and return its knee. Raises RoundhouseError."""
    import uvloop

    load = LoadOptions(
        endpoint=model,
        env=session.environment.name,
        slo=f"{options.slo_ms:.6f}",
        warm_up=2.0,
        seconds=LONGEST_SECONDS,
        input=options.input,
        rows=options.rows_per_request,
    )
    runner = KneeRunner(test=engine_test(session.paths, session.report, load))
    uvloop.run(runner.run())
    return runner.knee()


def run_comparison(run: Run, cells: Sequence[Cell]) -> tuple[CellResult, ...]:
    """Measure every cell and delete its endpoint. Raises RoundhouseError before anything is built.

    A cell that cannot be built, deployed or loaded is a row with its reason.
    """
    left = run.prepare(cells)
    require_possible(run, cells)
    try:
        run.measure_all(left)
    finally:
        run.clean_up()
    return tuple(run.results[cell.name] for cell in cells)


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


def delete_endpoints(session: Session, subject: Subject) -> int:
    """Delete the endpoints of a subject's cells, those of an interrupted run too; how many.

    What CloudFormation is still creating or updating is waited for, since it cannot be deleted.
    """
    stacks = _standing(session, subject)
    if any(map(is_changing, stacks)):
        with session.report.step("Waiting for CloudFormation, which deletes no stack it changes"):
            while any(map(is_changing, stacks)):
                time.sleep(EVERY_SECONDS)
                stacks = _standing(session, subject)
    if stacks:
        delete_stacks(session, stacks)
    return len(stacks)


def _standing(session: Session, subject: Subject) -> list[StackSummary]:
    deployed = deployed_endpoints(session)
    return [stack for name, stack in deployed.items() if is_cell_model(subject, name)]
