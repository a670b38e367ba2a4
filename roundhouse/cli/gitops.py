"""`roundhouse gitops`: the forge's workflows, and what they ask of the forge."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from roundhouse.cli.options import Env, Root

INIT_EXAMPLE = "roundhouse gitops init --owners @acme/platform --repository acme/models"
DISPATCH_EXAMPLE = "roundhouse gitops dispatch --workflow roundhouse.yml --ref my-branch"
PULL_REQUEST_EXAMPLE = "roundhouse gitops pull-request --branch roundhouse/prices --title Prices"
EXECUTION_POLICY_EXAMPLE = "roundhouse gitops execution-policy --env prod"

gitops = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Set up workflows, and call the forge.\n\nGITHUB_REPOSITORY and GITHUB_TOKEN name the "
    "forge, or CI_PROJECT_ID and GITLAB_TOKEN.",
)


class ForgeChoice(StrEnum):
    """Where the repository is."""

    github = "github"
    gitlab = "gitlab"


Base = Annotated[str, typer.Option(metavar="BRANCH", help="The branch that it is for.")]


@gitops.command(epilog=f"Example: {INIT_EXAMPLE}")
def init(
    owners: Annotated[
        list[str],
        typer.Option(
            metavar="OWNER",
            help="@user, @organization/team or e-mail address of who approves changes; may be "
            "repeated.",
        ),
    ],
    forge: Annotated[
        ForgeChoice, typer.Option(help="Where the repository is.")
    ] = ForgeChoice.github,
    repository: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="The repository on GitHub.")
    ] = None,
    repository_id: Annotated[int | None, typer.Option(help="Its number.")] = None,
    owner_id: Annotated[int | None, typer.Option(help="Its owner's number.")] = None,
    root: Root = None,
) -> None:
    """Write workflows and code owners.

    And Renovate's settings and, with the repository's numbers, the `github` of every environment
    file; then say what a person must set. A file that is there with another text is never
    overwritten, nor an environment that names another repository: nothing is written then.
    """
    from onboarding.tree import read_tree
    from roundhouse.errors import UsageError
    from roundhouse.gitops.github_block import block_steps, environment_edits, github_spec
    from roundhouse.gitops.pipeline import pipeline_environments
    from roundhouse.gitops.set_up import (
        github_steps,
        gitlab_steps,
        pipeline_files,
        write_pipeline,
    )
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report
    from roundhouse.session import valid_tree

    paths, report = current_paths(root), open_report()
    github = github_spec(repository, repository_id, owner_id)
    is_github = forge is ForgeChoice.github
    if not is_github and (repository is not None or github is not None):
        raise UsageError("--repository, --repository-id and --owner-id are GitHub's; leave them.")
    texts = pipeline_files(paths.code, forge.value, owners)
    tree = read_tree(paths.tree) if github is None else valid_tree(paths)
    environments = pipeline_environments(tree)
    specs = {item.name: tree.environments[item.name] for item in environments}
    edits = {} if github is None else environment_edits(paths.tree, specs, github)
    result = write_pipeline(paths.tree, texts, edits)
    for path in sorted(result.present):
        report.print(f"As it is  {path}")
    for path in sorted(result.written):
        report.print(f"Wrote     {path}")
    for path in result.edited:
        report.print(f"Edited    {path}: its workflows' repository")
    report.print("Then set:")
    steps = github_steps if is_github else gitlab_steps
    blocks = block_steps(specs, repository) if is_github and github is None else ()
    for step in (*blocks, *steps(environments)):
        report.print(f"- {step}")


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


@gitops.command("execution-policy", epilog=f"Example: {EXECUTION_POLICY_EXAMPLE}")
def execution_policy(env: Env, root: Root = None) -> None:
    """Print the policy of CloudFormation's role.

    A JSON list of policy documents, in place of AdministratorAccess: make a managed policy of each,
    and give their ARNs to `cdk bootstrap --cloudformation-execution-policies`.
    """
    from onboarding.resolve import deployments
    from roundhouse.gitops.execution_policy import execution_policies
    from roundhouse.paths import current_paths
    from roundhouse.report import print_json
    from roundhouse.session import valid_tree

    tree = valid_tree(current_paths(root))
    deployments(tree, env)
    print_json(list(execution_policies(tree.environments[env])))
