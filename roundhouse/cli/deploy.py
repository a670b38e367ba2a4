"""`roundhouse deploy`: the whole pipeline of one environment."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roundhouse.cli.options import AllowDirty, Env, Root

EXAMPLE = "roundhouse deploy --env dev"


def deploy(
    env: Env,
    endpoint: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this endpoint, its engines and the foundation, not the dashboard; may be "
            "repeated."
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Deploy added permissions (IAM, policies) unasked.")
    ] = False,
    concurrency: Annotated[
        int, typer.Option(min=1, max=50, help="Stacks that update at the same time.")
    ] = 1,
    allow_dirty: AllowDirty = False,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Deploy exactly the change that this file of `roundhouse plan --out` shows, its "
            "permissions included; refused (exit 4) where anything moved since.",
            dir_okay=False,
        ),
    ] = None,
    root: Root = None,
) -> None:
    """Build what is missing, check it, deploy it.

    Foundation stacks, missing images and engines, verification of every archive, endpoint stacks
    one after the other; each endpoint must then serve what was deployed.
    """
    from roundhouse.deploy.deployment import DeployOptions
    from roundhouse.deploy.deployment import deploy as deploy_session
    from roundhouse.dev.environments import prepare_local_cloud
    from roundhouse.errors import UsageError
    from roundhouse.gitops.stale import read_plan, review_of
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import LOCAL, open_session, start_local_cloud
    from roundhouse.text import quantity

    if plan is not None and endpoint:
        raise UsageError(
            "--plan holds for every endpoint of the environment; leave --endpoint out."
        )
    report, paths = open_report(), current_paths(root)
    planned = None if plan is None else read_plan(plan, env)
    if env == LOCAL:
        prepare_local_cloud(paths)
        start_local_cloud(paths, report)
    session = open_session(paths, report, env, endpoints=tuple(endpoint or ()))
    options = DeployOptions(
        yes=yes or planned is not None,
        confirm=report.confirm if report.is_interactive else None,
        concurrency=concurrency,
        # What the local cloud held goes with it; nobody else serves those engines.
        rebuild_gone=session.is_local,
        allow_dirty=allow_dirty,
        **({} if planned is None else review_of(planned)),
    )
    result = deploy_session(session, options)
    built = f"{quantity(len(result.built), 'engine')} built" if result.built else "nothing built"
    pushed = f"{quantity(len(result.images), 'image')} pushed, " if result.images else ""
    changed = quantity(len(result.deployed.changed), "stack")
    unchanged = len(result.deployed.unchanged)
    report.print(f"Done: {pushed}{built}, {changed} changed, {unchanged} with no changes.")
