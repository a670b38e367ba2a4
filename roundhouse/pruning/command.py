"""`roundhouse prune`: engines and networks that no lock names, marked for the bucket to delete in
time.
"""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli_options import Env, Form, Format, Root

EPILOG = "Example: roundhouse prune --env dev --dry-run"

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only show what would be marked.")]
OlderThan = Annotated[
    int,
    typer.Option(
        "--older-than",
        min=0,
        help="Days; younger engines may be of a branch that is not merged yet.",
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

    The bucket deletes them later; until then the mark can be taken off.
    """
    from roundhouse import commands
    from roundhouse.pruning.prune import prune as run
    from roundhouse.pruning.table import NOTHING, prune_table, sentences
    from roundhouse.pruning.unreferenced import shown
    from roundhouse.road import open_road

    report = commands.reporting(form.value)
    pruned = run(
        open_road(commands.here(root), report, env), older_than_days=older_than, dry_run=dry_run
    )
    if form is Format.json:
        commands.print_json(pruned.as_dict())
    elif not shown(pruned.found):
        report.say(NOTHING)
    else:
        report.console.print(prune_table(pruned))
        for sentence in sentences(pruned):
            report.say(sentence)
