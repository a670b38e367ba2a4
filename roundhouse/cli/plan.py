"""`roundhouse plan`: what deploying the files as they are would change, cost and take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Root, TextFormat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roundhouse.gitops.plan_document import Plan
    from roundhouse.paths import Paths
    from roundhouse.report import Report

EXAMPLE = "roundhouse plan --env dev --against origin/main --format markdown > comment.md"


def plan(
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            help="Environment: a file in environments/; several may be given; default: every one.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            "--against",
            metavar="REF|deployed",
            help="A git reference, or `deployed` for what the account of one --env has; default: "
            "origin/main, or main.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the plan there as JSON too.", dir_okay=False)
    ] = None,
    read: Annotated[
        Path | None,
        typer.Option(help="Only print the plan that --out wrote there.", dir_okay=False),
    ] = None,
    head: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="With --read: refuse a plan of another commit."),
    ] = None,
    form: Annotated[
        TextFormat, typer.Option("--format", help="json: one document; markdown: one comment.")
    ] = TextFormat.text,
    root: Root = None,
) -> None:
    """Show what a change of the files does, takes and costs.

    Engines to build, resources, permissions, rollout, scaling and cost, before anything is built or
    deployed. Against a git reference it
    needs no credentials and no network.
    """
    from roundhouse.errors import UsageError
    from roundhouse.gitops.plan_comment import require_head
    from roundhouse.gitops.plan_document import read_plan_file
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    if head is not None and read is None:
        raise UsageError("--head is the commit that the plan of --read must be of; add --read.")
    report = open_report("json" if form is not TextFormat.text else "")
    if read is not None:
        found = read_plan_file(read)
        if head is not None:
            require_head(found, head)
        _print_plan(report, found, form)
        return
    paths = current_paths(root)
    found = _new_plan(paths, report, env or (), against)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    _print_plan(report, found, form)
    _require_deployable(found)


def _new_plan(paths: Paths, report: Report, env: Sequence[str], against: str | None) -> Plan:
    from roundhouse.errors import UsageError
    from roundhouse.gitops.compare import DEPLOYED, plan_against_deployed, plan_against_git
    from roundhouse.processes import Processes
    from roundhouse.session import open_session

    if against != DEPLOYED:
        return plan_against_git(paths, against, tuple(env), Processes())
    if len(env) != 1:
        raise UsageError("--against deployed needs one --env, whose account is asked.")
    from roundhouse.deploy.stacks import environment_templates

    session = open_session(paths, report, env[0])
    return plan_against_deployed(paths, env[0], environment_templates(session), Processes())


def _require_deployable(plan: Plan) -> None:
    """Raise for files with faults, endpoints that cannot be deployed, engines that are missing."""
    from roundhouse.errors import BuildFailedError, RoundhouseError
    from roundhouse.text import quantity

    if plan.faults:
        raise RoundhouseError(
            f"The files have {quantity(len(plan.faults), 'fault')}; `roundhouse check` shows "
            "them all."
        )
    faulty = [item.name for item_of in plan.environments for item in item_of.endpoints
              if item.faults]  # fmt: skip
    if faulty:
        raise RoundhouseError(f"Cannot be deployed: {', '.join(faulty)}; the plan has the reasons.")
    missing = sorted({engine.model for item in plan.environments for engine in item.missing})
    if missing:
        raise BuildFailedError(
            f"Engines of {', '.join(missing)} are not built; `roundhouse build` builds them."
        )


def _print_plan(report: Report, plan: Plan, form: TextFormat) -> None:
    """Print a plan: as tables, as a document for machines, or as one comment."""
    from roundhouse.gitops.plan_comment import comment
    from roundhouse.gitops.plan_text import headline, notes, sections
    from roundhouse.report import print_json

    if form is TextFormat.json:
        print_json(plan.model_dump(mode="json"))
        return
    if form is TextFormat.markdown:
        print(comment(plan))
        return
    commits = [f"{side.ref} {(side.commit or '')[:12]}".strip() for side in (plan.head, plan.base)]
    report.print(f"{commits[0]}{' (files not committed)' if plan.head.dirty else ''} against "
                 f"{commits[1]}")  # fmt: skip
    for fault in plan.faults:
        report.print(f"✗ {fault}")
    for environment in plan.environments:
        report.print(f"\n{headline(environment)}   (plan {environment.id})")
        for section in sections(environment):
            report.print_table(section)
        for note in notes(environment):
            report.print(note)
