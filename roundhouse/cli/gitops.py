"""`roundhouse gitops`: the forge's workflows, and what they ask of the forge."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from roundhouse.cli.options import Env, Root

INIT_EXAMPLE = "roundhouse gitops init --owners @acme/platform"
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
    root: Root = None,
) -> None:
    """Write workflows and code owners.

    And Renovate's settings; then say what a person must set. A file that is there with another text
    is never overwritten: nothing is written then.
    """
    from onboarding.tree import read_tree
    from roundhouse.gitops.pipeline import pipeline_environments
    from roundhouse.gitops.set_up import (
        github_steps,
        gitlab_steps,
        pipeline_files,
        write_pipeline,
    )
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    paths, report = current_paths(root), open_report()
    result = write_pipeline(paths.tree, pipeline_files(paths.code, forge.value, owners))
    for path in sorted(result.present):
        report.print(f"As it is  {path}")
    for path in sorted(result.written):
        report.print(f"Wrote     {path}")
    environments = pipeline_environments(read_tree(paths.tree))
    steps = github_steps if forge is ForgeChoice.github else gitlab_steps
    report.print("Then set:")
    for step in steps(environments):
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
