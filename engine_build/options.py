"""The command line of a build."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from engine_build.errors import InputRefused


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one build is asked for."""

    root: Path
    environment: str
    model: str
    out: Path
    publish: str | None = None
    """An s3:// bucket, or a folder; None leaves the engine in `out`."""
    format: Literal["text", "json"] = "text"
    networks_only: bool = False
    """Ends once the networks are made, checked and published: no engine, so no GPU."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise InputRefused(f"{message}; run `python -m engine_build --help` for the options.")


def options(arguments: Sequence[str]) -> Options:
    """The options of a command line. Raises InputRefused."""
    parser = _Parser(
        prog="python -m engine_build",
        description="Builds, judges and publishes the engine of one model for one environment; a known one is not built again.",
        epilog="Exit codes: 0 built or already there; 1 bad input; 3 accuracy budget missed; 4 network refused by the compile "
        "check; 5 source or export fault; 6 publish failed.",
        allow_abbrev=False,
    )
    parser.add_argument("--root", type=Path, default=Path(), help="onboarding root: models/, endpoints/, environments/")
    parser.add_argument("--environment", required=True, help="a file of environments/, without .yaml")
    parser.add_argument("--model", required=True, help="a file of models/, without .yaml")
    parser.add_argument("--out", type=Path, required=True, help="work folder: log, networks, engine; a later run goes on from it")
    parser.add_argument("--publish", metavar="s3://BUCKET", help="where engines are published; default: they stay in --out")
    parser.add_argument("--networks-only", action="store_true", help="make, check and publish the networks, and no engine")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="what the result on stdout looks like")
    return Options(**vars(parser.parse_args(arguments)))
