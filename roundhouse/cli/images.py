"""Images of `roundhouse build --images`: built where they are missing, pinned, or described."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roundhouse.cli.options import Format

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

    from roundhouse.report import Report
    from roundhouse.session import Session


def build_or_show_images(
    session: Session, report: Report, *, pin: bool, sbom: bool, dry_run: bool, form: Format
) -> None:
    """Build the container images that an environment lacks. In CodeBuild: no Docker here."""
    from roundhouse.deploy.images import (
        NOT_HERE,
        build_images,
        image_states,
        pin_block,
        write_sboms,
    )
    from roundhouse.paths import displayed_path
    from roundhouse.report import print_json

    if sbom:
        for path in write_sboms(session):
            report.print(displayed_path(path))
        return
    is_local, states = session.is_local, image_states(session)
    if pin:
        report.print(pin_block(session, states).rstrip())
        return
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
    """Return a table of images: name, address in the registry, state."""
    from roundhouse.report import table

    return table(
        ("Image", "Address", "State"), ((row["image"], row["uri"], row["state"]) for row in rows)
    )
