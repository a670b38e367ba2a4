"""`roundhouse rollback`: what an environment or an endpoint deployed before."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Env, Root

EXAMPLE = "roundhouse rollback --env prod"


def rollback(
    env: Env,
    endpoint: Annotated[
        str | None,
        typer.Argument(help="Roll this endpoint back alone; default: the whole environment."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="A commit that was promoted; default: the one before."),
    ] = None,
    root: Root = None,
) -> None:
    """Write the promotion before the last one again.

    What reverting the promotion's commit does, without an editor: commit the file, merge it and
    deploy. Nothing is built, and nothing is copied.
    """
    from onboarding.promotion import write_promotion
    from roundhouse.gitops.rollback import earlier_promotion
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.processes import Processes
    from roundhouse.report import open_report

    paths = current_paths(root)
    promotion = earlier_promotion(paths, env, Processes(), to, endpoint)
    what = f"{promotion.environment} deploys commit {promotion.commit[:12]}"
    for model, commit in promotion.models.items():
        what += f", {model} of {commit[:12]}"
    path = displayed_path(write_promotion(paths.tree, promotion))
    open_report().print(f"Wrote {path}: {what} once that file is merged.")
