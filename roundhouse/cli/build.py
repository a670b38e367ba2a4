"""`roundhouse build`: engines and checkpoints that an environment lacks, and their locks."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import AllowDirty, Env, Form, Format, Root

NOTHING = "Nothing to build: every engine is in its lock and in S3."
EXAMPLE = "roundhouse build --env dev --model sentence-embedder"


def build(
    env: Env,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this model; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show what is built, where, for how long and how much."
        ),
    ] = False,
    allow_dirty: AllowDirty = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Build missing engines and write their locks.

    And checkpoints of text generators. All in one go: in CodeBuild, or in training jobs on the GPU
    that serves.
    """
    import dataclasses

    from roundhouse.deploy.builds import engines
    from roundhouse.deploy.builds.checkpoint_requests import missing_checkpoints
    from roundhouse.deploy.builds.engine_requests import EnginesNotBuiltError, outcome
    from roundhouse.gitops.build_preview import COLUMNS, build_preview, checkpoint_preview
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json, table
    from roundhouse.session import open_session

    report, paths = open_report(form), current_paths(root)
    session = open_session(paths, report, env)
    requests = engines.missing_engines(session, tuple(model or ()))
    checkpoints = missing_checkpoints(session, tuple(model or ()))
    if dry_run:
        previews = [
            *(build_preview(session, request) for request in requests),
            *(checkpoint_preview(session, request) for request in checkpoints),
        ]
        if form is Format.json:
            print_json([dataclasses.asdict(preview) for preview in previews])
        elif previews:
            report.print_table(table(COLUMNS, (preview.cells() for preview in previews)))
        else:
            report.print(NOTHING)
        return
    try:
        entries = engines.build_all(
            session, requests, checkpoints=checkpoints, allow_dirty=allow_dirty
        )
    except EnginesNotBuiltError as error:
        if form is Format.json:
            print_json(outcome(error.built, error.failures))
        raise
    if form is Format.json:
        print_json(outcome(entries, ()))
    elif not entries:
        report.print(NOTHING)
    else:
        report.print(f"Locks written under {session.environment.locks}/: review and commit them.")
