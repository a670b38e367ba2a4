"""The command line of a checkpoint's build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from engine_build.errors import InputRefused
from engine_build.options import Parser


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one build of a checkpoint is asked for."""

    root: Path
    environment: str
    model: str
    key: str
    out: Path
    store: str | None = None
    """An s3:// bucket, or a folder: what is published and known of sources."""
    upload: bool = False
    candidate: str | None = None
    """Where, under candidates/, the checkpoint waits for its signature; None: it is published."""
    format: Literal["text", "json"] = "text"


def options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line. Raises InputRefused."""
    parser = Parser(
        prog="python -m engine_build.text_generation",
        description="Quantizes a text generator, compares it with its source and publishes it; a "
        "known checkpoint is not built again.",
        epilog="Exit codes: 0 built or already there, within its budget or not; 1 bad input; 5 "
        "source fault; 6 publish failed.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    root = "onboarding root: models/, environments/"
    option("--root", type=Path, default=Path(), help=root)
    option("--environment", required=True, help="a file of environments/, without .yaml")
    option("--model", required=True, help="a file of models/, without .yaml")
    option("--key", required=True, help="checkpoint key, 20 hex digits: one of the model's schemes")
    out = "work folder: log, checkpoint/, checkpoint.json; a later run goes on from it"
    option("--out", type=Path, required=True, help=out)
    option("--store", metavar="s3://BUCKET", help="where checkpoints are published, or a folder")
    option("--upload", action="store_true", help="publish the checkpoint in --store")
    candidate = "publish as this candidate, for the environment's signer; default: as a checkpoint"
    option("--candidate", metavar="NAME", help=candidate)
    form = "what the result on stdout looks like"
    option("--format", choices=("text", "json"), default="text", help=form)
    chosen = Options(**vars(parser.parse_args(arguments)))
    if chosen.upload and not chosen.store:
        raise InputRefused("--upload needs --store; name the bucket or folder to publish in.")
    if chosen.candidate is not None and not chosen.upload:
        raise InputRefused("--candidate needs --upload; add it, or leave the candidate out.")
    if not chosen.out.name:
        raise InputRefused("--out is empty; name a folder.")
    return chosen
