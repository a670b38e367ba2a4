"""YAML text as nodes or plain data: by libyaml, or by PyYAML where libyaml refuses."""

from __future__ import annotations

from importlib import resources
from typing import Any

import yaml

LARGEST_DEPTH = 200
LARGEST_INDENTATION = 2_000
FAST_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class TooDeepError(ValueError):
    """A depth on which PyYAML would spend minutes, and libyaml the whole stack."""


def compose_yaml(text: str) -> yaml.Node | None:
    """The root node; None when the text holds no document.

    Raises TooDeepError, and what PyYAML raises.
    """
    refuse_depth(text)
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=FAST_LOADER)
    except yaml.YAMLError:
        # PyYAML's own sentence is the one that its users know; what it can read is no fault.
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    return root


def load_yaml(text: str) -> Any:
    """The plain data. Raises TooDeepError, and what PyYAML raises."""
    refuse_depth(text)
    try:
        return yaml.load(text, Loader=FAST_LOADER)
    except yaml.YAMLError:
        return yaml.safe_load(text)


def refuse_depth(text: str) -> None:
    """Raise TooDeepError for a text that no loader should be given."""
    if (
        _bracket_depth(text) > LARGEST_DEPTH
        or _line_depth(text) > LARGEST_DEPTH
        or " " * LARGEST_INDENTATION in text
    ):
        raise TooDeepError("nests too much")


def _bracket_depth(text: str) -> int:
    """Brackets in quotes and comments count, so the limit leaves room for them."""
    if text.count("[") + text.count("{") <= LARGEST_DEPTH:
        return 0
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}" and depth > 0)
        deepest = max(deepest, depth)
    return deepest


def _line_depth(text: str) -> int:
    """The most items and keys that one line opens inside each other."""
    if text.count("- ") + text.count("? ") <= LARGEST_DEPTH:
        return 0
    return max(line.count("- ") + line.count("? ") for line in text.splitlines())


def load_data(name: str) -> Any:
    """Return the content of a file of onboarding/data."""
    return load_yaml(resources.files("onboarding.data").joinpath(name).read_text(encoding="utf-8"))
