"""`roundhouse rollback`: what an environment or an endpoint deployed before."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Root

EXAMPLE = "roundhouse rollback --env prod"


def rollback(
    endpoint: Annotated[
        str | None,
        typer.Argument(help="Roll this endpoint back alone; default: the whole environment."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option("--env", help="Environment; default: the only one that has a promotion."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="A commit that was promoted; default: the one before."),
    ] = None,
    pull_request: Annotated[
        bool, typer.Option("--pr", help="Push the promotion to a branch and open its pull request.")
    ] = False,
    root: Root = None,
) -> None:
    """Write the promotion before the last one again.

    What reverting the promotion's commit does, without an editor: commit the file, merge it and
    deploy. Nothing is built, and nothing is copied.
    """
    from onboarding.promotion import write_promotion
    from roundhouse import settings
    from roundhouse.gitops.forge.forge import forge_of
    from roundhouse.gitops.promotion_request import open_promotion_request
    from roundhouse.gitops.rollback import earlier_promotion
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.processes import Processes
    from roundhouse.report import open_report

    paths, report, run = current_paths(root), open_report(), Processes()
    forge = forge_of(settings.inherited()) if pull_request else None
    promotion = earlier_promotion(paths, env, run, to, endpoint)
    what = f"{promotion.environment} deploys commit {promotion.commit[:12]}"
    for model, commit in promotion.models.items():
        what += f", {model} of {commit[:12]}"
    if forge is None:
        path = displayed_path(write_promotion(paths.tree, promotion))
        report.print(f"Wrote {path}: {what} once that file is merged.")
        return
    subject = (
        promotion.environment if endpoint is None else f"{endpoint} in {promotion.environment}"
    )
    opened = open_promotion_request(paths, report, promotion, f"Roll back {subject}", forge, run)
    report.print(f"{opened.address}: {what} once it is merged.")
