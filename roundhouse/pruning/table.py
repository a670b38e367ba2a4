"""What `roundhouse prune` tells a person."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from roundhouse.pruning.prune import Pruned
from roundhouse.pruning.unreferenced import Found, Verdict, shown

NOTHING = "Every engine and network is named by a lock: nothing to mark."


def prune_table(pruned: Pruned) -> Table:
    """One row per engine or network that no lock names, or that was marked."""
    table = Table()
    for column in ("Kind", "Key", "Model", "Size", "Age", "What becomes of it"):
        table.add_column(
            column, overflow="fold", justify="right" if column in ("Size", "Age") else "left"
        )
    for each in shown(pruned.found):
        size, days = f"{each.stored.size_bytes / 1e6:,.1f} MB", f"{each.age_days} days"
        table.add_row(
            each.stored.kind, each.stored.key, escape(each.model or "–"), size, days, _becomes(each)
        )
    return table


def sentences(pruned: Pruned) -> tuple[str, ...]:
    """What was done, how long it can be taken back, and how."""
    marked = pruned.of(Verdict.marked)
    freed = (
        sum(each.stored.size_bytes for each in pruned.of(Verdict.marked, Verdict.marked_before))
        / 1e9
    )
    would = "would be marked" if pruned.dry_run else "marked"
    days = f"The mark alone deletes nothing for {pruned.kept_days} days."
    said = [f"{len(marked)} {would}; all that is marked holds {freed:.2f} GB. {days}"]
    if marked or pruned.of(Verdict.marked_before):
        said.append(
            "To take it back: put the lock's entry back, then `roundhouse prune` or `roundhouse deploy` takes the mark off. "
            "What was deleted is a version of the bucket for 30 days more: `aws s3api list-object-versions` finds its delete "
            "marker, and deleting that brings it back; or `roundhouse build` builds it again."
        )
    return tuple(said)


def _becomes(each: Found) -> str:
    return (
        each.verdict.value
        if each.gone_on is None
        else f"{each.verdict.value}: deleted on {each.gone_on.date().isoformat()}"
    )
