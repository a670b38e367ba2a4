"""`roundhouse comment`: a plan as the one comment of a pull request."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

EXAMPLE = "roundhouse comment --plan plan.json --head $(git rev-parse HEAD)"


def comment(
    plan: Annotated[
        list[Path],
        typer.Option(help="A file of `roundhouse plan --out`; several may be given."),
    ],
    head: Annotated[
        str,
        typer.Option(metavar="COMMIT", help="The pull request's head, of which the plan must be."),
    ],
    pull_request: Annotated[
        int | None,
        typer.Option(min=1, help="Its number; default: the open one with that head, forks too."),
    ] = None,
) -> None:
    """Write a plan as a pull request's comment.

    One comment, updated by every further plan. The file is read as data that anybody may have
    written. GITHUB_REPOSITORY and GITHUB_TOKEN name the forge, or CI_PROJECT_ID and GITLAB_TOKEN.
    """
    from roundhouse import settings
    from roundhouse.gitops.forge.forge import forge_of
    from roundhouse.gitops.plan_comment import comment_on_pull_request
    from roundhouse.gitops.plan_file import read_plan_file
    from roundhouse.report import open_report

    plans = [read_plan_file(path) for path in plan]
    address = comment_on_pull_request(forge_of(settings.inherited()), plans, head, pull_request)
    open_report().print(
        f"No open pull request has head {head[:12]} any more; nothing was written."
        if address is None
        else f"Wrote {address}"
    )
