"""`roundhouse gitops`: the forge's workflows, and what they ask of the forge."""

from __future__ import annotations

from typing import Annotated

import typer

DISPATCH_EXAMPLE = "roundhouse gitops dispatch --workflow roundhouse.yml --ref my-branch"
PULL_REQUEST_EXAMPLE = "roundhouse gitops pull-request --branch roundhouse/prices --title Prices"

gitops = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Set up workflows, and call the forge.\n\nGITHUB_REPOSITORY and GITHUB_TOKEN name the "
    "forge, or CI_PROJECT_ID and GITLAB_TOKEN.",
)

Base = Annotated[str, typer.Option(metavar="BRANCH", help="The branch that it is for.")]


@gitops.command(epilog=f"Example: {DISPATCH_EXAMPLE}")
def dispatch(
    workflow: Annotated[str, typer.Option(help="A file in .github/workflows/, without folders.")],
    ref: Annotated[str, typer.Option(metavar="BRANCH", help="The branch that it runs on.")],
) -> None:
    """Start a workflow on a branch.

    A push by a workflow starts none.
    """
    from roundhouse import settings
    from roundhouse.gitops.forge.forge import forge_of
    from roundhouse.report import open_report

    forge_of(settings.inherited()).dispatch_workflow(workflow, ref, {})
    open_report().print(f"Started {workflow} on {ref}.")


@gitops.command("pull-request", epilog=f"Example: {PULL_REQUEST_EXAMPLE}")
def pull_request(
    branch: Annotated[str, typer.Option(help="The branch, which the forge has.")],
    title: Annotated[str, typer.Option(help="Its title.")],
    body: Annotated[str, typer.Option(help="Its text, in Markdown.")] = "",
    base: Base = "main",
) -> None:
    """Open or update a branch's pull request.

    The one that is open from the branch is updated.
    """
    from roundhouse import settings
    from roundhouse.gitops.forge.forge import forge_of
    from roundhouse.report import open_report

    forge = forge_of(settings.inherited())
    open_report().print(f"Wrote {forge.open_pull_request(branch, base, title, body)}")
