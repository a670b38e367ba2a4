"""`roundhouse build`: the engines that an environment lacks, and their locks."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import AllowDirty, Env, Form, Format, Root

EXAMPLE = "roundhouse build --env dev --model sentence-embedder"


def build(
    env: Env,
    model: Annotated[
        list[str] | None, typer.Option(help="Only this model; may be repeated.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Only show which engines, where, for how long and how much."
        ),
    ] = False,
    allow_dirty: AllowDirty = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Build missing engines and write their locks.

    All in one go: in CodeBuild, or in training jobs on the GPU that serves.
    """
    import dataclasses

    from onboarding.generation_findings import refuse_generators
    from roundhouse.deploy.builds import engines
    from roundhouse.deploy.builds.engine_requests import EnginesNotBuiltError, outcome
    from roundhouse.gitops.build_preview import COLUMNS, build_preview
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json, table
    from roundhouse.session import open_session, valid_tree

    report, paths = open_report(form), current_paths(root)
    session = open_session(paths, report, env)
    refuse_generators(valid_tree(session.paths), env, tuple(model or ()))
    requests = engines.missing_engines(session, tuple(model or ()))
    if dry_run:
        previews = [build_preview(session, request) for request in requests]
        if form is Format.json:
            print_json([dataclasses.asdict(preview) for preview in previews])
        elif previews:
            report.print_table(table(COLUMNS, (preview.cells() for preview in previews)))
        else:
            report.print("Nothing to build: every engine is in its lock and in S3.")
        return
    try:
        entries = engines.build_all(session, requests, allow_dirty=allow_dirty)
    except EnginesNotBuiltError as error:
        if form is Format.json:
            print_json(outcome(error.built, error.failures))
        raise
    if form is Format.json:
        print_json(outcome(entries, ()))
    elif not entries:
        report.print("Nothing to build: every engine is in its lock and in S3.")
    else:
        report.print(f"Locks written under {session.environment.locks}/: review and commit them.")
