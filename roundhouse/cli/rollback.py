"""`roundhouse rollback`: what an environment deployed before its last promotion."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Env, Root

EXAMPLE = "roundhouse rollback --env prod"


def rollback(
    env: Env,
    to: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="A commit that was promoted; default: the one before."),
    ] = None,
    root: Root = None,
) -> None:
    """Write the promotion before the last one again.

    What reverting the promotion's commit does, without an editor: commit the file, merge it and
    deploy. Nothing is built.
    """
    from onboarding.promotion import promotion_path
    from roundhouse.gitops.rollback import roll_back
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.processes import Processes
    from roundhouse.report import open_report

    paths, report = current_paths(root), open_report()
    promotion = roll_back(paths, env, Processes(), to)
    path = displayed_path(promotion_path(paths.tree, env))
    report.print(
        f"Wrote {path}: {env} deploys commit {promotion.commit[:12]} of {promotion.date} once that "
        "file is merged."
    )
