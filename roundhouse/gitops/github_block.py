"""The `github:` block of environment files: added as one line, with everything else as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml
from pydantic import ValidationError

from onboarding.environment_spec import EnvironmentSpec, GithubSpec
from onboarding.yaml_text import load_yaml
from roundhouse.errors import RoundhouseError, UsageError

KEY, BEFORE = "github", "platform"
"""The block's key, and the one that every environment file has, below which it is added."""
NUMBERS = "gh api repos/{repository} --jq '.id,.owner.id'"
"""Prints a repository's number, and its owner's."""


def github_spec(
    repository: str | None, repository_id: int | None, owner_id: int | None
) -> GithubSpec | None:
    """Return what options name; None without both numbers. Raises UsageError."""
    if repository_id is None and owner_id is None:
        return None
    if repository is None or repository_id is None or owner_id is None:
        raise UsageError(
            "--repository, --repository-id and --owner-id go together; "
            f"`{NUMBERS.format(repository=repository or 'OWNER/NAME')}` prints the two numbers."
        )
    try:
        return GithubSpec(repository=repository, repository_id=repository_id, owner_id=owner_id)
    except ValidationError as error:
        fault = error.errors()[0]
        option = str(fault["loc"][0]).replace("_", "-")
        raise UsageError(
            f"--{option} {fault['input']!r}: give owner/name, and numbers as "
            f"`{NUMBERS.format(repository='OWNER/NAME')}` prints them."
        ) from error


def block_line(repository: str, repository_id: object, owner_id: object) -> str:
    """Return the line of an environment file."""
    numbers = f"repository_id: {repository_id}, owner_id: {owner_id}"
    return f"{KEY}: {{repository: {repository}, {numbers}}}"


def environment_edits(
    tree: Path, environments: Mapping[str, EnvironmentSpec], github: GithubSpec
) -> dict[str, str]:
    """Return the new texts, by path below `tree`, of the environment files that lack the block.

    Raises RoundhouseError with every file that names another repository, or cannot be edited.
    """
    edits: dict[str, str] = {}
    faults: list[str] = []
    for name, spec in environments.items():
        file = f"environments/{name}.yaml"
        if spec.github is not None:
            faults += _differences(file, spec.github, github)
            continue
        text = (tree / file).read_bytes().decode("utf-8")
        edited = _with_line(text, _line(github))
        if edited is None:
            faults.append(f"{file}: add the line `{_line(github)}` by hand; `{BEFORE}` there is "
                          "not on a line of its own")  # fmt: skip
        else:
            edits[file] = edited
    if faults:
        raise RoundhouseError(f"Nothing was written. {'. '.join(faults)}.")
    return edits


def block_steps(
    environments: Mapping[str, EnvironmentSpec], repository: str | None
) -> Iterator[str]:
    """Yield what a person adds to the environment files that lack the block, one line each."""
    name = repository or "OWNER/NAME"
    lacking = [item for item, spec in environments.items() if spec.github is None]
    for item in lacking:
        yield f"environments/{item}.yaml: add `{block_line(name, 'ID', 'OWNER_ID')}`."
    if lacking:
        yield (
            f"`{NUMBERS.format(repository=name)}` prints the two numbers; this command with "
            f"--repository {name} --repository-id ID --owner-id OWNER_ID adds the lines."
        )


def _line(github: GithubSpec) -> str:
    return block_line(github.repository, github.repository_id, github.owner_id)


def _differences(file: str, present: GithubSpec, given: GithubSpec) -> Iterator[str]:
    for name in ("repository", "repository_id", "owner_id"):
        value, other = getattr(present, name), getattr(given, name)
        if value != other:
            yield f"{file}: `{KEY}.{name}` is {value}, given {other}; correct the one that is wrong"


def _with_line(text: str, line: str) -> str | None:
    """Return a YAML text with a line below the platform's; None where that cannot be."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    if not isinstance(root, yaml.MappingNode) or root.flow_style:
        return None
    node = next(value for key, value in root.value if key.value == BEFORE)
    end = text.find("\n", node.end_mark.index)
    is_crlf = end > 0 and text[end - 1] == "\r"
    newline = "\r\n" if is_crlf else "\n"
    head, tail = (f"{text}{newline}", "") if end < 0 else (text[: end + 1], text[end + 1 :])
    edited = f"{head}{line}{newline}{tail}"
    wanted = {**load_yaml(text), **load_yaml(line)}
    try:
        return edited if load_yaml(edited) == wanted else None
    except (ValueError, yaml.YAMLError):
        return None
