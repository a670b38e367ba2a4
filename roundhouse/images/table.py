"""The table that `roundhouse images` prints."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.table import Table

from roundhouse.images.images import ImageState


def images_table(states: Sequence[ImageState], built: Collection[str], *, is_local: bool) -> Table:
    """One row per image."""
    table = Table()
    for column in ("Image", "Address", "State"):
        table.add_column(column, overflow="fold")
    for each in states:
        image = each.order.image
        table.add_row(image, each.order.uri, each.state(built=image in built, is_local=is_local))
    return table
