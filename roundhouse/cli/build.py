"""`roundhouse build`: engines, checkpoints and images that an environment lacks, and locks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import AllowDirty, Env, Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roundhouse.deploy.builds.requests import BuildRequest
    from roundhouse.report import Report
    from roundhouse.session import Session
    from roundhouse.table import Table

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
    images: Annotated[
        bool,
        typer.Option("--images", help="Only the container images that the environment lacks."),
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Build missing engines and write their locks.

    And checkpoints of text generators. All in one go: in CodeBuild, or in training jobs on the GPU
    that serves.
    """
    from roundhouse.deploy.builds import engines
    from roundhouse.deploy.builds.requests import EnginesNotBuiltError, outcome
    from roundhouse.errors import UsageError
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    if images and (model or allow_dirty):
        raise UsageError("--images builds no engine; leave --model and --allow-dirty.")
    report, paths = open_report(form), current_paths(root)
    session = open_session(paths, report, env)
    if images:
        build_or_show_images(session, report, dry_run=dry_run, form=form)
        return
    requests = engines.missing_builds(session, tuple(model or ()))
    if dry_run:
        _print_preview(session, report, requests, form)
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
        report.print(NOTHING)
    else:
        report.print(f"Locks written under {session.environment.locks}/: review and commit them.")


def _print_preview(
    session: Session, report: Report, requests: Sequence[BuildRequest], form: Format
) -> None:
    """Print what would be built, where, for how long and how much."""
    import dataclasses

    from roundhouse.gitops.build_estimates import COLUMNS, build_preview
    from roundhouse.report import print_json
    from roundhouse.table import table

    previews = [build_preview(session, request) for request in requests]
    if form is Format.json:
        print_json([dataclasses.asdict(item) for item in previews])
    elif previews:
        report.print_table(table(COLUMNS, (item.cells() for item in previews)))
    else:
        report.print(NOTHING)


def build_or_show_images(session: Session, report: Report, *, dry_run: bool, form: Format) -> None:
    """Build the container images that an environment lacks. In CodeBuild: no Docker here."""
    from roundhouse.deploy.images import NOT_HERE, build_images, image_states
    from roundhouse.report import print_json

    is_local, states = session.is_local, image_states(session)
    missing = (
        () if is_local or dry_run else tuple(state.order for state in states if not state.is_there)
    )
    build_images(session, missing)
    built = frozenset(order.image for order in missing)
    rows = [state.as_dict(built=state.order.image in built, is_local=is_local) for state in states]
    if form is Format.json:
        print_json(rows)
    else:
        report.print_table(images_table(rows))
    if is_local:
        report.print(NOT_HERE)


def images_table(rows: Sequence[Mapping[str, str]]) -> Table:
    """Return a table of images: name, address in the registry, state, digest."""
    from roundhouse.table import table

    keys = ("image", "uri", "state", "digest")
    return table(
        ("Image", "Address", "State", "Digest"),
        (tuple(row[key] or "–" for key in keys) for row in rows),
    )
