"""Writes a chosen candidate into its model file; comments and everything else stay as they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from onboarding.replacement import replace_text
from onboarding.tree import Tree, read_tree
from onboarding.yaml_text import compose_yaml, load_yaml
from roundhouse.compare.cells import Cell, merge
from roundhouse.compare.tree import Subject
from roundhouse.errors import RoundhouseError, UsageError
from roundhouse.paths import Paths
from roundhouse.text import choices

Keys = tuple[str, ...]
INNER_COMMENT = re.compile(r"\s#")


def write_candidate(paths: Paths, subject: Subject, cells: Sequence[Cell], name: str) -> str:
    """Write a cell's overrides into models/NAME.yaml and return what was changed.

    The file keeps its line endings. Raises UsageError for an unknown cell, RoundhouseError where
    the file cannot take it; the file is as it was then.
    """
    cell = next((cell for cell in cells if cell.name == name), None)
    if cell is None:
        known = choices(name, [cell.name for cell in cells])
        raise UsageError(f"--write {name}: no such candidate of these axes; {known}")
    file = paths.tree / "models" / f"{subject.name}.yaml"
    before = read_model_file(file)
    overrides = _own_keys(cell.overrides, load_yaml(before))
    after = edit_text(before, overrides)
    if after is None:
        block = yaml.safe_dump(overrides, sort_keys=False).strip()
        raise RoundhouseError(
            f"models/{file.name}: cannot be edited without changing more than the candidate; write "
            f"into it yourself:\n{block}"
        )
    if after == before:
        return f"models/{file.name} is {name} already: nothing was changed."
    tree = replace_model_file(paths, file, after, f"as {name}")
    return f"models/{file.name} is {name} now.{_override_notice(tree, subject, overrides)}"


def read_model_file(file: Path) -> str:
    """Return the text of a model file with its own line endings."""
    return file.read_bytes().decode()


def replace_model_file(paths: Paths, file: Path, text: str, what: str) -> Tree:
    """Replace a model file and return the tree with it; the file stays where that has faults.

    `what` says in a message what the new text is. Raises RoundhouseError.
    """
    before = read_model_file(file)
    replace_text(file, text)
    try:
        tree = read_tree(paths.tree)
        if tree.faults:
            faults = "; ".join(map(str, tree.faults))
            raise RoundhouseError(
                f"models/{file.name}: {what} it has faults, so it stays: {faults}"
            )
    except BaseException:
        replace_text(file, before)
        raise
    return tree


def _own_keys(overrides: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what the file has already; an endpoint that is shared has a type of its own."""
    result = {key: dict(value) for key, value in overrides.items()}
    if "endpoint" in result and not isinstance(document.get("endpoint"), Mapping):
        del result["endpoint"]
    return result


def _override_notice(tree: Tree, subject: Subject, overrides: Mapping[str, Any]) -> str:
    """Say which keys the environment sets itself, so that the model file's have no effect there."""
    effective = tree.views[subject.environment].models[subject.name].document.data
    keys = [
        ".".join(path)
        for path, value in leaves(overrides)
        if value is not None and _at(effective, path) != value
    ]
    if not keys:
        return ""
    return (
        f" environments/{subject.environment}.yaml overrides {', '.join(keys)}: change them there."
    )


def leaves(overrides: Mapping[str, Any], path: Keys = ()) -> Iterator[tuple[Keys, Any]]:
    """Yield every value of an override with its path; a list is a value."""
    for key, value in overrides.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, (*path, key))
        else:
            yield (*path, key), value


def edit_text(text: str, overrides: Mapping[str, Any]) -> str | None:
    """Return a YAML text with overrides written in; None where anything else would change."""
    try:
        expected = _pruned(merge(load_yaml(text), overrides))
        for path, value in leaves(overrides):
            text = _remove_key(text, path) if value is None else _write_value(text, path, value)
        return text if _pruned(load_yaml(text)) == expected else None
    except (yaml.YAMLError, ValueError, AttributeError, TypeError, IndexError):
        return None


def _write_value(text: str, path: Keys, value: Any) -> str:
    node, depth = _nearest(text, path)
    shown = yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n...\n")
    shown = shown.strip()
    if depth == len(path):
        if isinstance(node, yaml.CollectionNode) and INNER_COMMENT.search(
            text, node.start_mark.index, _end(node)
        ):
            raise ValueError(f"{path} has comments inside, which would be lost")
        if load_yaml(text[node.start_mark.index : node.end_mark.index]) == value:
            return text
        return f"{text[: node.start_mark.index]}{shown}{text[_end(node) :]}"
    for key in reversed(path[depth + 1 :]):
        shown = f"{{{key}: {shown}}}"
    entry = f"{path[depth]}: {shown}"
    if not isinstance(node, yaml.MappingNode):
        raise TypeError(f"{path[:depth]} is no mapping")
    if node.flow_style:
        at = node.start_mark.index + 1
        return f"{text[:at]}{entry}{', ' if node.value else ''}{text[at:]}"
    mark = node.value[0][0].start_mark
    begin = mark.index - mark.column
    newline = "\r\n" if text[begin:].partition("\n")[0].endswith("\r") else "\n"
    return f"{text[:begin]}{' ' * mark.column}{entry}{newline}{text[begin:]}"


def _remove_key(text: str, path: Keys) -> str:
    """Remove a key with its value where it stands, and the lines of a block that are its own."""
    parent, depth = _nearest(text, path[:-1])
    if depth < len(path) - 1 or not isinstance(parent, yaml.MappingNode):
        return text
    pairs = [pair for pair in parent.value if pair[0].value == path[-1]]
    if not pairs:
        return text
    ((key, value),) = pairs
    if parent.flow_style:
        raise ValueError(f"{path} is inside a line")
    begin = key.start_mark.index - key.start_mark.column
    end = text.find("\n", max(_end(value) - 1, key.end_mark.index)) + 1
    return text[:begin] + text[end or len(text) :]


def _nearest(text: str, path: Keys) -> tuple[yaml.Node, int]:
    """Return the node of a path, or of its longest part that is there, and that part's length."""
    node = compose_yaml(text)
    if node is None:
        raise ValueError("the file is empty")
    for depth, key in enumerate(path):
        pairs = node.value if isinstance(node, yaml.MappingNode) else []
        child = next((value for name, value in pairs if name.value == key), None)
        if child is None:
            return node, depth
        node = child
    return node, len(path)


def _end(node: yaml.Node) -> int:
    """Return where a node's own text ends: a block's end mark lies behind comments and blanks."""
    while isinstance(node, yaml.MappingNode | yaml.SequenceNode) and not node.flow_style:
        if not node.value:
            break
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _at(document: Any, path: Keys) -> Any:
    for key in path:
        document = document.get(key) if isinstance(document, Mapping) else None
    return document


def _pruned(document: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what is None: a key that is not there has the same meaning."""
    return {
        key: _pruned(value) if isinstance(value, Mapping) else value
        for key, value in document.items()
        if value is not None
    }
