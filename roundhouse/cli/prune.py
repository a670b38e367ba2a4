"""`roundhouse prune`: what no lock names is tagged for the bucket to delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Env, Form, Format, Root

if TYPE_CHECKING:
    from roundhouse.deploy.prune import Found, Pruned
    from roundhouse.table import Table

EXAMPLE = "roundhouse prune --env dev --dry-run"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be marked.")]
OlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        min=0,
        help="Days; younger ones may be of a branch that is not merged yet.",
    ),
]


def prune(
    env: Env,
    dry_run: DryRun = False,
    older_than: OlderThan = 30,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """Mark engines and networks that no lock names.

    And checkpoints of text generators. The bucket deletes them later; until then the mark can be
    taken off.
    """
    from roundhouse.deploy.prune import prune as mark_unreferenced
    from roundhouse.deploy.prune import reportable
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report, print_json
    from roundhouse.session import open_session

    report = open_report(form)
    session = open_session(current_paths(root), report, env)
    pruned = mark_unreferenced(session, older_than_days=older_than, dry_run=dry_run)
    if form is Format.json:
        print_json(pruned.as_dict())
    elif not reportable(pruned.found):
        report.print("A lock names every engine, network and checkpoint: nothing to mark.")
    else:
        report.print_table(prune_table(pruned))
        for line in summary_lines(pruned):
            report.print(line)


def prune_table(pruned: Pruned) -> Table:
    """Return a table of what no lock names, or was marked."""
    from roundhouse.deploy.prune import reportable
    from roundhouse.table import table

    return table(
        ("Kind", "Key", "Model", "Size", "Age", "What becomes of it"),
        (
            (
                found.stored.kind,
                found.stored.key,
                found.model or "–",
                f"{found.stored.size_bytes / 1e6:,.1f} MB",
                f"{found.age_days} days",
                _outcome(found),
            )
            for found in reportable(pruned.found)
        ),
        right=("Size", "Age"),
    )


def summary_lines(pruned: Pruned) -> tuple[str, ...]:
    """Return what was marked, how long it can be taken back, and how."""
    from roundhouse.deploy.prune import Verdict

    marked = pruned.of(Verdict.marked)
    all_marked = pruned.of(Verdict.marked, Verdict.marked_before)
    freed = sum(found.stored.size_bytes for found in all_marked) / 1e9
    would = "would be marked" if pruned.dry_run else "marked"
    first = (
        f"{len(marked)} {would}; all that is marked holds {freed:.2f} GB. "
        f"The mark alone deletes nothing for {pruned.kept_days} days."
    )
    if not all_marked:
        return (first,)
    return (
        first,
        "To take it back: put the lock's entry back, then `roundhouse prune` or `roundhouse "
        "deploy` "
        "takes the mark off. What was deleted is a version of the bucket for 30 days more: "
        "`aws s3api list-object-versions` finds its delete marker, and deleting that brings it "
        "back; or `roundhouse build` builds it again.",
    )


def _outcome(found: Found) -> str:
    if found.gone_on is None:
        return found.verdict.value
    return f"{found.verdict.value}: deleted on {found.gone_on.date().isoformat()}"
