"""Options that many commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class Format(StrEnum):
    """How results are printed."""

    text = "text"
    json = "json"


class TextFormat(StrEnum):
    """How results are printed that a pull request or an issue may show too."""

    text = "text"
    json = "json"
    markdown = "markdown"


Root = Annotated[
    Path | None,
    typer.Option(
        "--root",
        help="Onboarding tree (models/, endpoints/, environments/) that lies elsewhere.",
        exists=True,
        file_okay=False,
    ),
]
Env = Annotated[
    str, typer.Option("--env", help="Environment: a file in environments/, without .yaml.")
]
Form = Annotated[
    Format, typer.Option("--format", help="json: one document for machines, on standard output.")
]
AllowDirty = Annotated[
    bool,
    typer.Option(
        "--allow-dirty", help="Build from files that are not committed; the manifest says so."
    ),
]
Input = Annotated[
    Path | None, typer.Option(help=".txt, .tsv or .npz; default: the model's accuracy dataset.")
]
RowsPerRequest = Annotated[
    int, typer.Option("--texts-per-request", "--rows", min=1, help="In each request.")
]
