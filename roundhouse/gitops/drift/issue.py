"""The one issue of an environment's drift: opened, updated, and closed once there is none."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from roundhouse.gitops.drift.difference import Difference
from roundhouse.gitops.forge.forge import Forge
from roundhouse.gitops.markdown import markdown, markdown_table
from roundhouse.text import quantity

SHOWN = 200
"""Characters of a value."""
COLUMNS = ("endpoint", "what", "deployed", "runs")


def report_drift(forge: Forge, environment: str, found: Sequence[Difference]) -> str | None:
    """Open or update the issue with every difference, or close it where there is none.

    Returns its address; None: there is no difference, and no issue was open.
    """
    marker = f"<!-- roundhouse:drift:{environment} -->"
    if not found:
        return forge.close_issue(marker, f"{markdown(environment)} is as deployed again.")
    rows = (
        (item.endpoint, item.what, *(shorten(str(side), SHOWN, placeholder=" …")
                                     for side in (item.deployed, item.live)))
        for item in found
    )  # fmt: skip
    body = (
        f"{quantity(len(found), 'thing')} of {markdown(environment)} changed by hand, or no file "
        f"names any more.\n\n{markdown_table(COLUMNS, rows)}\n\nPut them back by hand or change "
        "the files: a deploy does not undo what its templates do not see. This issue is updated by "
        "every `roundhouse drift --issue`, and closed once nothing differs.\n"
    )
    return forge.upsert_issue(marker, f"{environment} is not as deployed", body)
