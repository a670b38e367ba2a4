"""What `roundhouse new --workflows` writes: a repository's pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roundhouse.paths import Paths
    from roundhouse.report import Report


def write_workflows(
    paths: Paths,
    report: Report,
    forge: Literal["github", "gitlab"],
    owners: Sequence[str],
    repository: str | None,
) -> None:
    """Write workflows and code owners.

    And Renovate's settings; then say what a person must set. A file that is there with another
    text is never overwritten, nor is anything where an environment names another repository.
    """
    from onboarding.tree import read_tree
    from roundhouse.errors import UsageError
    from roundhouse.gitops.set_up import (
        block_steps,
        github_steps,
        gitlab_steps,
        pipeline_environments,
        pipeline_files,
        repository_of,
        write_pipeline,
    )
    from roundhouse.session import valid_tree

    name, github = (None, None) if repository is None else repository_of(repository)
    is_github = forge == "github"
    if not is_github and name is not None:
        raise UsageError("--repository is GitHub's; leave it.")
    texts = pipeline_files(paths.code, forge, owners)
    tree = read_tree(paths.tree) if github is None else valid_tree(paths)
    environments = pipeline_environments(tree)
    specs = {item.name: tree.environments[item.name] for item in environments}
    blocks = list(block_steps(specs, name, github)) if is_github else []
    result = write_pipeline(paths.tree, texts)
    for path in sorted(result.present):
        report.print(f"As it is  {path}")
    for path in sorted(result.written):
        report.print(f"Wrote     {path}")
    report.print("Then set:")
    steps = github_steps if is_github else gitlab_steps
    for step in (*blocks, *steps(environments)):
        report.print(f"- {step}")
