"""The command line of a build."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
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
    compute_capability: str | None = None
    """Which of the engines that the environment needs of the model; None.

    The one of its endpoint's first instance type.
    """
    publish: str | None = None
    """An s3:// bucket, or a folder; None leaves the engine in `out`."""
    format: Literal["text", "json"] = "text"
    networks_only: bool = False
    """Ends once the networks are made, checked and published: no engine, so no GPU."""


class Parser(argparse.ArgumentParser):
    """Refuses a command line in a sentence, as everything else is refused."""

    def error(self, message: str) -> NoReturn:
        """Raises InputRefused."""
        raise InputRefused(f"{message}; run `{self.prog} --help` for the options.")


def options(arguments: Sequence[str]) -> Options:
    """The options of a command line. Raises InputRefused."""
    parser = Parser(
        prog="python -m engine_build",
        description="Builds, judges and publishes the engine of one model for one environment; a "
        "known one is not built again.",
        epilog="Exit codes: 0 built or already there; 1 bad input; 3 accuracy budget missed; 4 "
        "network refused by the compile "
        "check; 5 source or export fault; 6 publish failed.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--root",
        type=Path,
        default=Path(),
        help="onboarding root: models/, endpoints/, environments/",
    )
    parser.add_argument(
        "--environment", required=True, help="a file of environments/, without .yaml"
    )
    parser.add_argument("--model", required=True, help="a file of models/, without .yaml")
    parser.add_argument(
        "--compute-capability",
        type=_place,
        metavar="M.N",
        help="for a model that several GPU generations serve, such as 8.9, or cpu; default: that "
        "of its first instance type",
    )
    parser.add_argument(
        "--out",
        type=_folder,
        required=True,
        help="work folder: log, networks, engine; a later run goes on from it",
    )
    parser.add_argument(
        "--publish",
        type=_place,
        metavar="s3://BUCKET",
        help="where engines are published; default: they stay in --out",
    )
    parser.add_argument(
        "--networks-only",
        action="store_true",
        help="make, check and publish the networks, and no engine",
    )
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="what the result on stdout looks like",
    )
    return Options(**vars(parser.parse_args(arguments)))


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether a command line that cannot be read asks for JSON all the same."""
    return "--format=json" in arguments or ("--format", "json") in pairwise(arguments)


def _place(text: str) -> str:
    """An empty address would be the current folder: what an unset variable of a script gives."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name a place")
    return text


def _folder(text: str) -> Path:
    return Path(_place(text))
