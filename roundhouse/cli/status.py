"""`roundhouse status`: the local cloud, and each engine, lock and endpoint of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

if TYPE_CHECKING:
    from roundhouse.paths import Paths
    from roundhouse.report import Report
    from roundhouse.status.state import State

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
    model: Annotated[
        str | None, typer.Argument(help="With --card: a file in models/, without .yaml.")
    ] = None,
    card: Annotated[
        bool,
        typer.Option(
            "--card",
            help="Only show a model's precisions with memory, latency and accuracy.",
        ),
    ] = False,
) -> None:
    """Show engines, locks, and what runs.

    What runs: endpoint configs, engines, images, instances, alarms. How that differs from the files
    is for `roundhouse plan --against deployed` and `roundhouse drift`.
    """
    from roundhouse.card import show_card
    from roundhouse.errors import UsageError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import LOCAL
    from roundhouse.status.state import state_of

    if environments:
        show_environments(current_paths(root), env, form)
        return
    env, report = env or LOCAL, open_report(form)
    if card != (model is not None):
        raise UsageError("--card: is of one model; write `roundhouse status MODEL --card`.")
    if model is not None:
        show_card(current_paths(root), report, env, model)
        return
    state = state_of(current_paths(root), report, env)
    if form is Format.json:
        print_json(state.as_dict())
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
        print_json([item.as_dict() for item in chosen])
        return
    for item in chosen:
        print(item.name)


def show_state(report: Report, state: State) -> None:
    """Print the tables of a state, and below each what it rests on."""
    from roundhouse.status.table import (
        generator_lines,
        generators_table,
        live_generator_lines,
        live_generators_table,
        live_table,
        state_table,
        unknown_lines,
    )

    report.print(f"Local cloud: {state.cloud or 'not up (`roundhouse up` starts it)'}")
    report.print_table(state_table(state))
    if state.generators:
        report.print_table(generators_table(state.generators))
    for line in generator_lines(state.generators):
        report.print(line)
    for line in unknown_lines(state):
        report.print(line)
    if state.live:
        report.print_table(live_table(state.live))
    if state.live_generators:
        report.print_table(live_generators_table(state.live_generators))
    for line in live_generator_lines(state.live_generators):
        report.print(line)
