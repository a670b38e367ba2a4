"""`roundhouse images`: the container images of an environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

EXAMPLE = "roundhouse images --env dev"


def images(
    env: Env,
    pin: Annotated[
        bool,
        typer.Option(
            "--pin",
            help="Build nothing; print the lines of the environment file that keep endpoints at "
            "the serving images of this code.",
        ),
    ] = False,
    sbom: Annotated[
        bool,
        typer.Option(
            "--sbom",
            help="Build nothing and ask nobody; write the images' bills of materials (CycloneDX) "
            "into build/sbom.",
        ),
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Build the container images that an environment lacks. In CodeBuild: no Docker here."""
    from roundhouse.deploy.images import (
        NOT_HERE,
        build_images,
        image_states,
        pin_block,
        write_sboms,
    )
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    report = open_report(form)
    session = open_session(current_paths(root), report, env)
    if sbom:
        for path in write_sboms(session):
            report.print(displayed_path(path))
        return
    is_local, states = session.is_local, image_states(session)
    if pin:
        report.print(pin_block(session, states).rstrip())
        return
    missing = () if is_local else tuple(state.order for state in states if not state.is_there)
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
    """Return a table of images: name, address in the registry, state."""
    from roundhouse.report import table

    return table(
        ("Image", "Address", "State"), ((row["image"], row["uri"], row["state"]) for row in rows)
    )
