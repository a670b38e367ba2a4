"""The command line of a build."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from engine_build.errors import InputRefused
from onboarding.plan_source import PLAN_SOURCE, PlanSource


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one build is asked for."""

    root: Path
    environment: str
    model: str
    out: Path
    compute_capability: str | None = None
    """Which engine of the model is built; None for that of its endpoint's first instance type."""
    publish: str | None = None
    """An s3:// bucket, or a folder; None leaves the engine in `out`."""
    candidate: str | None = None
    """Where, under candidates/, the engine waits for its signature; None: it is published."""
    format: Literal["text", "json"] = "text"
    plan_from: PlanSource | None = None
    """The engine in the store whose plan is packaged; None: one is compiled."""
    networks_only: bool = False
    """Ends once the networks are made, checked and published: no engine, so no GPU."""
    key: str | None = None
    """A text generator's checkpoint; None for an engine."""


class Parser(argparse.ArgumentParser):
    """Refuses a command line in a sentence, as everything else is refused."""

    def error(self, message: str) -> NoReturn:
        """Raises InputRefused."""
        raise InputRefused(f"{message}; run `{self.prog} --help` for the options.")


def options(arguments: Sequence[str]) -> Options:
    """Return the options of a command line. Raises InputRefused."""
    parser = Parser(
        prog="python -m engine_build",
        description="Builds, judges and publishes the engine of one model for one environment, or "
        "one checkpoint of a text generator; what is known is not built again.",
        epilog="Exit codes: 0 built or already there, a checkpoint within its budget or not; 1 bad "
        "input; 3 accuracy budget missed; 4 network refused by the compile check; 5 source or "
        "export fault; 6 publish failed.",
        allow_abbrev=False,
    )
    option = parser.add_argument
    root = "onboarding root: models/, endpoints/, environments/"
    option("--root", type=Path, default=Path(), help=root)
    option("--environment", required=True, help="a file of environments/, without .yaml")
    option("--model", required=True, help="a file of models/, without .yaml")
    option(
        "--compute-capability",
        type=_address,
        metavar="M.N",
        help="for a model that several GPU generations serve, such as 8.9, or cpu; default: that "
        "of its first instance type",
    )
    key = "checkpoint key of a text generator, 20 hex digits: one of its schemes"
    option("--key", type=_address, metavar="KEY", help=key)
    out = "work folder: log, networks, engine or checkpoint; a later run goes on from it"
    option("--out", type=lambda text: Path(_address(text)), required=True, help=out)
    publish = "where engines and checkpoints are published; default: they stay in --out"
    option("--publish", type=_address, metavar="s3://BUCKET", help=publish)
    candidate = "publish as this candidate, for the environment's signer; default: at once"
    option("--candidate", type=_address, metavar="NAME", help=candidate)
    plan_from = (
        "package the plan of this published engine and compile nothing, so no GPU is needed; the "
        "engine's plan key must be the same"
    )
    option("--plan-from", type=_plan_source, metavar="ENGINE[:SHA256]", help=plan_from)
    networks_only = "make, check and publish the networks, and no engine"
    option("--networks-only", action="store_true", help=networks_only)
    form = "what the result on stdout looks like"
    option("--format", choices=("text", "json"), default="text", help=form)
    chosen = Options(**vars(parser.parse_args(arguments)))
    if chosen.candidate is not None and chosen.publish is None:
        raise InputRefused("--candidate needs --publish; add it, or leave the candidate out.")
    of_engines = {
        "--compute-capability": chosen.compute_capability,
        "--plan-from": chosen.plan_from,
        "--networks-only": chosen.networks_only or None,
    }
    given = [name for name, value in of_engines.items() if value is not None]
    if chosen.key is not None and given:
        raise InputRefused(f"--key is of a checkpoint, and {given[0]} of an engine; leave one out.")
    return chosen


def _address(text: str) -> str:
    """Refuse an empty one, which an unset variable gives: it would be the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("it is empty; name a place")
    return text


def _plan_source(text: str) -> PlanSource:
    known = PLAN_SOURCE.fullmatch(text)
    if known is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no engine; allowed: an engine key of 20 hex digits, and the sha256 of "
            "its archive behind a colon"
        )
    return PlanSource(engine_key=known[1], sha256=known[2])
