"""Reads a template's text: JSON, or YAML with CloudFormation's short intrinsics such as `!Ref` and
`!Sub`.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from onboarding.yaml_text import TooDeep, refuse_depth

LARGEST_NODES, DEEPEST = 500_000, 100
"""Values that a template may come to once its YAML aliases are followed, and levels that it may
have.
"""


class TextFault(Exception):
    """Why a text is no document, in one clause; `key_twice` when an object has one key twice."""

    def __init__(self, what: str, *, key_twice: bool = False) -> None:
        super().__init__(what)
        self.key_twice = key_twice


def document(text: str, *, is_json: bool) -> Any:
    """The document of a text, every key of it once.

    Raises `TextFault` for what is neither JSON nor YAML, has a key twice, or comes to more than
    `LARGEST_NODES` values.
    """
    try:
        found = _json(text) if is_json else _yaml(text)
        nodes, depth = _extent(found, {})
    except RecursionError:
        raise TextFault("it is nested too deeply") from None
    if depth > DEEPEST:
        raise TextFault(f"it is nested {depth} levels deep, more than {DEEPEST}")
    if nodes > LARGEST_NODES:
        raise TextFault(f"it comes to more than {LARGEST_NODES} values, its aliases followed")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as error:
        raise TextFault(
            f"it is no JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        ) from None
    except ValueError:
        raise TextFault(
            "it is no JSON that can be read: a number has thousands of digits"
        ) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise TextFault(f"the key {twice} is there twice", key_twice=True)
    return found


_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""libyaml's, ten times as fast, where PyYAML was built with it."""


class _Loader(_BASE):  # type: ignore[misc]
    """YAML as CloudFormation reads it: dates are texts, and `!Sub` is `Fn::Sub`."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_SHORT = re.compile(r"[A-Za-z0-9:]+")


def _yaml(text: str) -> Any:
    try:
        # libyaml spends the whole stack on what is deeper, and takes the process with it.
        refuse_depth(text)
    except TooDeep:
        raise TextFault("it is nested too deeply") from None
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        raise TextFault(f"it is no YAML: {place}{error.problem}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise TextFault(f"it is no YAML: {' '.join(str(error).split())}") from None
    finally:
        loader.dispose()


def _mapping(loader: _Loader, node: yaml.MappingNode) -> dict[Any, Any]:
    lines: dict[str, int] = {}
    for each, _ in node.value:
        if not isinstance(each, yaml.ScalarNode) or each.value == "<<":
            continue
        line = each.start_mark.line + 1
        if each.value in lines:
            raise TextFault(
                f"the key {each.value} is there twice, on lines {lines[each.value]} and {line}",
                key_twice=True,
            )
        lines[each.value] = line
    loader.flatten_mapping(node)
    found: dict[Any, Any] = loader.construct_mapping(node, deep=True)
    # Account ids and `Yes` are keys of mappings, too; CloudFormation reads every key as a text.
    return {
        key if isinstance(key, str) else str(key).lower(): value for key, value in found.items()
    }


def _short(loader: _Loader, tag: str, node: yaml.Node) -> Any:
    """`!GetAtt A.B` as `Fn::GetAtt: [A, B]`; any other `!X` as `Fn::X`."""
    if not _SHORT.fullmatch(tag):
        raise TextFault(
            f"line {node.start_mark.line + 1} has a tag that CloudFormation has not: !{tag}"
        )
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)
    if tag == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
_Loader.add_multi_constructor("!", _short)


def _extent(value: Any, known: dict[int, tuple[int, int]]) -> tuple[int, int]:
    """How many values there are, what an alias repeats counted every time, and how many levels."""
    if not isinstance(value, dict | list):
        _refuse_half_character(value)
        return 1, 0
    if id(value) not in known:
        for key in value if isinstance(value, dict) else ():
            _refuse_half_character(key)
        # A value that holds itself, which YAML allows, is deeper than anything.
        known[id(value)] = (LARGEST_NODES, DEEPEST + 1)
        held = [
            _extent(each, known) for each in (value.values() if isinstance(value, dict) else value)
        ]
        known[id(value)] = (
            1 + sum(nodes for nodes, _ in held),
            1 + max((depth for _, depth in held), default=0),
        )
    return known[id(value)]


def _refuse_half_character(value: Any) -> None:
    """JSON may escape half of a character, which no text holds and no terminal prints."""
    if (
        isinstance(value, str)
        and not value.isascii()
        and any("\ud800" <= each <= "\udfff" for each in value)
    ):
        raise TextFault(f"it holds half a character: {value[:40]!a}")


def is_template(value: Any) -> bool:
    """True for a document that says, or looks as if, it were a CloudFormation template."""
    if not isinstance(value, dict):
        return False
    resources = value.get("Resources")
    typed = isinstance(resources, dict) and any(
        isinstance(each, dict) and "::" in str(each.get("Type")) for each in resources.values()
    )
    sections = {
        "Parameters",
        "Rules",
        "Conditions",
        "Mappings",
        "Outputs",
        "Metadata",
        "Description",
        "Transform",
    }
    only_sections = "Resources" not in value and {"Parameters", "Rules"} <= set(value) <= sections
    return typed or only_sections or "AWSTemplateFormatVersion" in value
