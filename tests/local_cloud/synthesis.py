"""`cdk synth` without its three programs: app.py synthesises in the process of the test."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import pairwise
from pathlib import Path
from typing import Any

from roundhouse import settings
from roundhouse.cdk_app import add_environments, create_app
from roundhouse.deploy.cdk import stack_artifacts
from roundhouse.paths import CODE
from roundhouse.processes import Command, Outcome, Processes
from tests.synth.assembly import read_stacks

COMMAND_LINE = {
    "aws:cdk:enable-path-metadata": True,
    "aws:cdk:enable-asset-metadata": True,
    "aws:cdk:disable-version-reporting": True,
    "aws:cdk:bundling-stacks": ["**"],
}
"""Context that the stock command line adds; `test_deploy` compares what comes of it."""


def run_synthesis_here(command: Command, on_line: Callable[[str], None] | None = None) -> Outcome:
    """Run a command; a sound synthesis of app.py without a process, which takes seconds less.

    What it refuses is refused by the command line itself, in its words.
    """
    if command.argv[1:2] == ("synth",) and _is_sound(command.argv[2:]):
        return Outcome(code=0, output="")
    return Processes()(command, on_line)


def _is_sound(arguments: tuple[str, ...]) -> bool:
    """Synthesise, and return whether no chosen stack has an error."""
    settings.quieten_cdk()
    patterns = arguments[: arguments.index("--app")]
    given = [value for key, value in pairwise(arguments) if key == "-c"]
    context: dict[str, Any] = json.loads((CODE / "cdk.json").read_text("utf-8"))["context"]
    context |= COMMAND_LINE | dict(item.split("=", 1) for item in given)
    folder = Path(arguments[arguments.index("--output") + 1])
    app = create_app((), outdir=str(folder), context=context)
    try:
        add_environments(app)
    except SystemExit:
        return False
    app.synth()
    refused = {stack.path for stack in read_stacks(folder) if stack.errors}
    chosen = stack_artifacts(folder).values()
    return not any(
        fnmatchcase(item.path, pattern) and item.file in refused
        for item in chosen
        for pattern in patterns
    )
