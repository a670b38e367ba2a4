"""`roundhouse environments`: the environments that workflows deploy, in their order."""

from __future__ import annotations

from typing import Annotated

import typer

from roundhouse.cli.options import Form, Format, Root

EXAMPLE = "roundhouse environments --format json"


def environments(
    env: Annotated[
        list[str] | None, typer.Option("--env", help="Only this one; may be repeated.")
    ] = None,
    builds: Annotated[
        bool, typer.Option("--builds", help="Only those that build engines and receive none.")
    ] = False,
    roles: Annotated[
        bool, typer.Option("--roles", help="Only those with roles for a repository's workflows.")
    ] = False,
    root: Root = None,
    form: Form = Format.text,
) -> None:
    """List the environments, in order of promotion.

    A name a line, for scripts; with account, region and the workflows' roles as JSON. The local
    cloud is none of them. Files with faults are left out, which `check` and `plan` name.
    """
    from onboarding.nearest import comma_list
    from onboarding.tree import read_tree
    from roundhouse.errors import RoundhouseError
    from roundhouse.gitops.pipeline import pipeline_environments
    from roundhouse.paths import current_paths
    from roundhouse.report import print_json

    found = pipeline_environments(read_tree(current_paths(root).tree))
    unknown = set(env or ()) - {item.name for item in found}
    if unknown:
        known = comma_list([item.name for item in found])
        raise RoundhouseError(f"No environment {sorted(unknown)[0]!r}; allowed: {known}.")
    chosen = [
        item
        for item in found
        if (not env or item.name in env)
        and not (builds and item.promotes_from)
        and (item.has_roles or not roles)
    ]
    if form is Format.json:
        print_json([item.as_dict() for item in chosen])
        return
    for item in chosen:
        print(item.name)
