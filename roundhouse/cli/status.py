"""`roundhouse status`: the local cloud, each engine, checkpoint and endpoint of an environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

if TYPE_CHECKING:
    from roundhouse.paths import Paths
    from roundhouse.report import Report
    from roundhouse.status import State

EXAMPLE = "roundhouse status --env dev --format json"


def status(
    env: Annotated[
        str | None,
        typer.Option("--env", help="Environment: a file in environments/; default: local."),
    ] = None,
    environments: Annotated[
        bool,
        typer.Option(
            "--environments",
            help="Only the environments that workflows deploy, or the one of --env, each after the "
            "one it promotes from; with --format json their roles too.",
        ),
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Show engines, checkpoints, locks, and what runs.

    What runs: endpoint configs, images, instances, copies, alarms. How that differs from the files
    is for `roundhouse plan --against deployed` and `roundhouse drift`.
    """
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import LOCAL
    from roundhouse.status import state_of

    if environments:
        show_environments(current_paths(root), env, form)
        return
    env, report = env or LOCAL, open_report(form)
    state = state_of(current_paths(root), report, env)
    if form is Format.json:
        print_json(asdict(state))
        return
    show_state(report, state)


def show_environments(paths: Paths, env: str | None, form: Format) -> None:
    """Print the environments that workflows deploy, or one of them. Raises RoundhouseError."""
    from onboarding.tree import read_tree
    from roundhouse.errors import RoundhouseError
    from roundhouse.gitops.set_up import pipeline_environments
    from roundhouse.report import print_json
    from roundhouse.text import choices

    found = pipeline_environments(read_tree(paths.tree))
    chosen = [item for item in found if env in (None, item.name)]
    if env is not None and not chosen:
        known = choices(env, [item.name for item in found])
        raise RoundhouseError(f"No environment {env!r} that workflows deploy; {known}")
    if form is Format.json:
        print_json([asdict(item) for item in chosen])
        return
    for item in chosen:
        print(item.name)


def show_state(report: Report, state: State) -> None:
    """Print the tables of a state, and below each what it rests on."""
    from roundhouse.status import (
        components_table,
        live_lines,
        live_table,
        state_table,
    )

    report.print(f"Local cloud: {state.cloud or 'not up (`roundhouse up` starts it)'}")
    report.print_table(state_table(state))
    for line in state.notes:
        report.print(line)
    if state.live:
        report.print_table(live_table(state.live))
    if any(endpoint.components for endpoint in state.live):
        report.print_table(components_table(state.live))
    for line in live_lines(state.live):
        report.print(line)
