"""`roundhouse plan`: what deploying the files as they are would change, cost and take."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Root

if TYPE_CHECKING:
    from roundhouse.gitops.plan_document import Plan
    from roundhouse.report import Report

EXAMPLE = "roundhouse plan --env dev --against origin/main --format markdown"


class PlanFormat(StrEnum):
    """How a plan is printed."""

    text = "text"
    json = "json"
    markdown = "markdown"


def plan(
    env: Annotated[
        list[str] | None,
        typer.Option("--env", help="Environment: a file in environments/; several may be given."),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Every environment (the default).")] = False,
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
    form: Annotated[
        PlanFormat, typer.Option("--format", help="json: one document; markdown: one comment.")
    ] = PlanFormat.text,
    root: Root = None,
) -> None:
    """Show what a change of the files does, takes and costs.

    Engines to build, resources, permissions, rollout, scaling and cost, before anything is built or
    deployed. Against a git reference it
    needs no credentials and no network.
    """
    from roundhouse.errors import BuildFailedError, RoundhouseError, UsageError
    from roundhouse.gitops.compare import DEPLOYED, plan_against_deployed, plan_against_git
    from roundhouse.gitops.plan_comment import comment
    from roundhouse.paths import current_paths
    from roundhouse.processes import Processes
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session
    from roundhouse.text import quantity

    if env and every:
        raise UsageError("--all and --env exclude each other; give one of them.")
    paths, report = current_paths(root), open_report("json" if form is not PlanFormat.text else "")
    if against == DEPLOYED:
        if not env or len(env) > 1:
            raise UsageError("--against deployed needs one --env, whose account is asked.")
        from roundhouse.deploy.stacks import environment_templates

        session = open_session(paths, report, env[0])
        found = plan_against_deployed(paths, env[0], environment_templates(session), Processes())
    else:
        found = plan_against_git(paths, against, tuple(env or ()), Processes())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(found.model_dump_json(indent=1) + "\n", encoding="utf-8")
    if form is PlanFormat.json:
        print_json(found.model_dump(mode="json"))
    elif form is PlanFormat.markdown:
        print(comment(found))
    else:
        _print_plan(report, found)
    if found.faults:
        raise RoundhouseError(
            f"The files have {quantity(len(found.faults), 'fault')}; `roundhouse check` shows "
            "them all."
        )
    faulty = [item.name for item_of in found.environments for item in item_of.endpoints
              if item.faults]  # fmt: skip
    if faulty:
        raise RoundhouseError(f"Cannot be deployed: {', '.join(faulty)}; the plan has the reasons.")
    missing = sorted({engine.model for item in found.environments for engine in item.missing})
    if missing:
        raise BuildFailedError(
            f"Engines of {', '.join(missing)} are not built; `roundhouse build` builds them."
        )


def _print_plan(report: Report, plan: Plan) -> None:
    """Print a plan as tables."""
    from roundhouse.gitops.plan_text import headline, notes, sections
    from roundhouse.report import table

    commits = [f"{side.ref} {(side.commit or '')[:12]}".strip() for side in (plan.head, plan.base)]
    report.print(f"{commits[0]}{' (files not committed)' if plan.head.dirty else ''} against "
                 f"{commits[1]}")  # fmt: skip
    for fault in plan.faults:
        report.print(f"✗ {fault}")
    for environment in plan.environments:
        report.print(f"\n{headline(environment)}   (plan {environment.id})")
        for section in sections(environment):
            report.print_table(table(section.columns, section.rows, title=section.title))
        for note in notes(environment):
            report.print(note)
