"""One acceptance run, from the refusals before it to the cleaning after it."""

from __future__ import annotations

import datetime
import json
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from local_cloud.lifecycle import CloudError
from onboarding.fault import FaultsError
from onboarding.lock import LockError
from roundhouse.acceptance.assumptions import Finding, Findings, Place, Verdict, by_name
from roundhouse.acceptance.cleanup import clean, leftovers
from roundhouse.acceptance.cleanup_record import (
    CleanupRecord,
    add_created,
    delete_record,
    read_record,
    write_record,
)
from roundhouse.acceptance.cost import Charge, bound_usd, charges, require_within
from roundhouse.acceptance.evidence import Evidence
from roundhouse.acceptance.sequence import limited_steps
from roundhouse.acceptance.setup import (
    ENVIRONMENT,
    NETWORK,
    Setup,
    new_paths,
    run_folder,
    write_tree,
)
from roundhouse.acceptance.steps.step import AcceptanceContext, AcceptanceStep
from roundhouse.acceptance.tiny_texts import shuffled_texts
from roundhouse.deploy.builds.engines import missing_engines
from roundhouse.deploy.quotas import require_quotas
from roundhouse.errors import NotReadyError, RoundhouseError
from roundhouse.interruption import TimeIsUp, time_limit
from roundhouse.paths import Paths
from roundhouse.processes import Command, Run
from roundhouse.report import Report
from roundhouse.session import Session, open_session
from roundhouse.settings import inherited

PROGRAM = "roundhouse.acceptance.tiny_network"
SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class AcceptanceOptions:
    """What a run may cost and how long it may take; None: no bound given, and the steps' own."""

    max_usd: float | None = None
    minutes: float | None = None
    prices: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class AcceptanceResult:
    """The findings of a run, and the folder of its evidence."""

    findings: tuple[Finding, ...]
    evidence: Path
    usd_bound: float

    def with_verdict(self, verdict: Verdict) -> tuple[Finding, ...]:
        """Return the findings of one verdict."""
        return tuple(row for row in self.findings if row.verdict is verdict)

    @property
    def is_accepted(self) -> bool:
        """Return whether everything was reached that applies, and nothing differs."""
        return not self.with_verdict(Verdict.differs) + self.with_verdict(Verdict.not_reached)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {
            "accepted": self.is_accepted,
            "evidence": str(self.evidence),
            "usd_bound": self.usd_bound,
            "findings": [row.as_dict() for row in self.findings],
        }


def require_possible(setup: Setup) -> None:
    """Refuse an environment on which a run shows nothing. Raises RoundhouseError."""
    if setup.in_local_cloud:
        return
    if not setup.has_gpu:
        raise RoundhouseError(
            f"Refused: platform {setup.platform.name} of {setup.origin} has no TensorRT, so no "
            "build route has a GPU and a run would show nothing of one; choose an environment "
            "with another platform (`roundhouse status --environments` lists them)."
        )
    if not setup.models:
        raise RoundhouseError(
            f"Refused: region {setup.environment.region} of {setup.origin} hosts none of the "
            "types that a run uses; choose an environment in another region."
        )


def planned_charges(
    setup: Setup, options: AcceptanceOptions
) -> tuple[tuple[AcceptanceStep, ...], tuple[Charge, ...]]:
    """Return the steps with their limits, and what they rent."""
    steps = limited_steps(options.minutes)
    return steps, charges(setup, steps, options.prices)


def run_acceptance(
    paths: Paths,
    report: Report,
    setup: Setup,
    options: AcceptanceOptions,
    run: Run,
    steps: Sequence[AcceptanceStep] | None = None,
) -> AcceptanceResult:
    """Walk every step and return the findings; what was made is gone afterwards.

    After Ctrl-C too, which is raised again then. A killed run leaves its record. Raises
    RoundhouseError where nothing was begun: an earlier run, prices, a missing GPU.
    """
    planned, items = planned_charges(setup, options)
    steps = planned if steps is None else steps
    require_possible(setup)
    bound = bound_usd(items, setup.environment.region)
    require_within(bound, options.max_usd)
    build = run_folder(paths, setup.origin)
    require_clean_record(build, setup.origin)
    own = new_paths(paths, setup.origin)
    write_models(own, setup, run)
    session = open_session(own, report, ENVIRONMENT, run, in_local_cloud=setup.in_local_cloud)
    require_unused(session, setup.origin)
    require_quotas(session, missing_engines(session), at_once=1)
    begun = datetime.datetime.now(datetime.UTC)
    evidence = Evidence(folder=build / f"{begun:%Y%m%dT%H%M%SZ}")
    rows = by_name(row for step in steps for row in step.assumptions(setup))
    findings = Findings(assumptions=rows)
    context = AcceptanceContext(session=session, setup=setup, evidence=evidence, findings=findings)
    record = CleanupRecord(
        environment=setup.environment,
        origin=setup.origin,
        in_local_cloud=setup.in_local_cloud,
        begun_at=begun.isoformat(timespec="seconds"),
        evidence=str(evidence.folder),
    )
    write_record(build, record)
    title = f"Acceptance of {setup.origin}, {record.begun_at}, {_where(setup)}"
    reasons: dict[str, str] = {}
    try:
        for step in steps[:-1]:
            record = add_created(build, record, step.creates(setup))
            reasons[step.name] = run_step(context, step)
            evidence.write_comparison(title, findings.table(reasons, places(setup)))
    finally:
        # Ctrl-C was seen, and must not end the cleaning at its first step.
        context.session = replace(session, report=replace(report, check=lambda: None))
        reasons[steps[-1].name] = run_step(context, steps[-1], is_limited=False)
        table = findings.table(reasons, places(setup))
        if not any(leftovers(session.clients, session.environment)):
            delete_record(build)
        evidence.write_comparison(title, table)
    return AcceptanceResult(findings=table, evidence=evidence.folder, usd_bound=bound)


def run_step(context: AcceptanceContext, step: AcceptanceStep, *, is_limited: bool = True) -> str:
    """Run a step within its limit; return why what it did not record was not reached."""
    obstacle = step.obstacle(context)
    if obstacle is not None or (is_limited and step.limit_minutes <= 0):
        reason = obstacle or "no time is left"
        context.session.report.print(f"– {step.title}: not reached, {reason}")
        return reason
    try:
        with context.session.report.step(f"{step.title} [{step.name}]") as line:
            if is_limited:
                with time_limit(step.limit_minutes * SECONDS):
                    line.finish(step.run(context))
            else:
                line.finish(step.run(context))
        return "the step did not come to it"
    except TimeIsUp:
        reason = f"no end within {step.limit_minutes:g} minutes"
    except (RoundhouseError, FaultsError, LockError, CloudError) as error:
        reason = " ".join(str(error).split())
    except Exception as error:
        # What nobody foresaw is a finding too, and no reason to leave later steps untried.
        reason = f"{type(error).__name__}: {error}"
        trace = "".join(traceback.format_exception(error))
        context.evidence.write_text(f"failures/{step.name}-trace.txt", trace)
    context.failed.add(step.name)
    context.evidence.write_text(f"failures/{step.name}.txt", reason + "\n")
    context.session.report.print(f"  {reason}")
    _fail_first(context, step, reason)
    return f"the step failed: {reason}"


def _fail_first(context: AcceptanceContext, step: AcceptanceStep, reason: str) -> None:
    """Record the reason at the first assumption that the step had not recorded."""
    known = places(context.setup)
    for row in step.assumptions(context.setup):
        if row.name not in context.findings.rows and row.place in known:
            context.findings.record(row.name, reason, holds=False)
            return


def places(setup: Setup) -> tuple[Place, ...]:
    """Return what an environment is."""
    result = [Place.anywhere]
    if not setup.in_local_cloud:
        result.append(Place.aws)
        if setup.has_gpu:
            result.append(Place.gpu)
    return tuple(result)


def require_clean_record(build: Path, origin: str) -> None:
    """Refuse a run after one that was killed. Raises RoundhouseError."""
    record = read_record(build)
    if record is not None:
        raise RoundhouseError(
            f"Refused: the acceptance run of {origin} that began at {record.begun_at} was "
            "interrupted and may have left resources that bill; `roundhouse acceptance --env "
            f"{origin} --clean` deletes them."
        )


def require_unused(session: Session, origin: str) -> None:
    """Refuse an account that holds anything of another run. Raises RoundhouseError."""
    left = tuple(leftovers(session.clients, session.environment))
    if left:
        shown = ", ".join(left[:3]) + (f" and {len(left) - 3} more" if len(left) > 3 else "")
        raise RoundhouseError(
            f"Refused: account {session.environment.account} holds an acceptance run already "
            f"({shown}), under way on another machine or interrupted; wait for it, or delete what "
            f"it left: `roundhouse acceptance --env {origin} --clean`."
        )


def clean_up(
    paths: Paths, report: Report, setup: Setup, run: Run, *, is_cloud_up: Callable[[], bool]
) -> tuple[str, ...]:
    """Delete what an earlier run left, by its record where there is one; return what it was.

    A local cloud that is not up holds nothing.
    """
    build = run_folder(paths, setup.origin)
    record = read_record(build)
    if setup.in_local_cloud and not is_cloud_up():
        delete_record(build)
        return ()
    setup = setup if record is None else replace(setup, environment=record.environment)
    own = new_paths(paths, setup.origin)
    write_models(own, setup, run)
    session = open_session(own, report, ENVIRONMENT, run, in_local_cloud=setup.in_local_cloud)
    deleted = clean(session)
    delete_record(build)
    return deleted


def write_models(paths: Paths, setup: Setup, run: Run) -> None:
    """Write the tree of a run, its network by the builder's environment. Raises NotReadyError."""
    python = str(paths.venv_python("builder"))
    folder = (paths.tree / NETWORK).parent
    command = Command(
        argv=(python, "-m", PROGRAM, "write", str(folder)),
        folder=paths.code,
        environment=inherited(),
    )
    outcome = run(command)
    try:
        digest = json.loads(outcome.output.strip().splitlines()[-1])["sha256"]
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise NotReadyError(
            f"The tiny network could not be written, `{command}` ended with {outcome.code}: "
            f"{outcome.last_lines()}; `make environments` mends the builder's environment."
        ) from error
    write_tree(paths.tree, setup, digest, shuffled_texts())


def _where(setup: Setup) -> str:
    if setup.in_local_cloud:
        return "played in the local cloud: AWS itself was asked nothing"
    environment = setup.environment
    return f"account {environment.account}, region {environment.region}"
