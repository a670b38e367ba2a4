"""CodeBuild's buildspec: phases as bash scripts that pass on variables and folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

PHASES = ("install", "pre_build", "build", "post_build")
VERSIONS = ("0.1", "0.2")


class BuildspecError(Exception):
    """A buildspec cannot be run; the message is one sentence."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """One phase's commands."""

    name: str
    commands: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Buildspec:
    """The phases that have commands, in CodeBuild's order, and the variables the buildspec sets."""

    phases: tuple[Phase, ...]
    variables: Mapping[str, str]
    exported: tuple[str, ...] = ()
    """Variables whose last values the build's record tells."""


def read_buildspec(text: str) -> Buildspec:
    """Reads a buildspec, refusing what the local cloud cannot run."""
    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise BuildspecError(
            f"YAML_FILE_ERROR: the buildspec does not parse ({' '.join(str(error).split())})"
        ) from error
    if not isinstance(content, dict) or str(content.get("version")) not in VERSIONS:
        raise BuildspecError(
            f"YAML_FILE_ERROR: the buildspec must be a mapping with version {' or '.join(VERSIONS)}"
        )
    phases = content.get("phases") or {}
    unknown = sorted(set(phases) - set(PHASES))
    if unknown or not phases:
        raise BuildspecError(
            f"YAML_FILE_ERROR: phases are {', '.join(PHASES)}; found {', '.join(unknown) or 'none'}"
        )
    variables = (content.get("env") or {}).get("variables") or {}
    return Buildspec(
        phases=tuple(
            Phase(name=name, commands=_commands(phases[name] or {}))
            for name in PHASES
            if name in phases
        ),
        variables={str(name): str(value) for name, value in variables.items()},
        exported=tuple(map(str, (content.get("env") or {}).get("exported-variables") or ())),
    )


def exported_variables(names: tuple[str, ...], exports: str) -> dict[str, str]:
    """The values of variables in what `export -p` says."""
    words = (word.partition("=") for word in shlex.split(exports))
    found = {name: value for name, _, value in words if name in names}
    # Bash escapes these within double quotes; shlex leaves them escaped.
    return {name: re.sub(r"\\([$`])", r"\1", value) for name, value in found.items()}


def _commands(content: Mapping[str, Any]) -> tuple[str, ...]:
    commands = content.get("commands") or []
    listed = [commands] if isinstance(commands, str) else commands
    if not isinstance(listed, list) or not all(isinstance(command, str) for command in listed):
        raise BuildspecError(
            f"YAML_FILE_ERROR: commands must be a list of strings, found {commands!r}"
        )
    return tuple(listed)


def phase_script(phase: Phase, shell_folder: Path, succeeding: bool) -> str:
    """Return the `bash -e` script of one phase; it continues where the phase before it ended."""
    exports, folder, progress = (
        shlex.quote(str(shell_folder / name)) for name in ("exports", "folder", "progress")
    )
    lines = [
        f"if [ -f {exports} ]; then . {exports}; fi",
        f'if [ -f {folder} ]; then cd "$(cat {folder})"; fi',
        f"export CODEBUILD_BUILD_SUCCEEDING={int(succeeding)}",
        f"at_end() {{ export -p > {exports}; pwd > {folder}; }}",
        "trap at_end EXIT",
    ]
    for number, command in enumerate(phase.commands):
        title = shlex.quote(f"[Container] Running command {command.strip()}")
        lines += [f"echo {number} > {progress}", f"echo {title}", command]
    return "\n".join([*lines, ""])
