"""HTML and SVG written as nested calls: every text is escaped, only what was made here is not."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = frozenset({"meta", "br", "line", "circle", "rect", "path", "polyline"})
"""Elements that this package writes without content."""


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


Child = str | Iterable[Markup]


def element(tag: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """One element.

    An attribute that is None is left out; `class_` is `class`, other underscores are hyphens.
    """
    written = "".join(
        f' {_name(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None
    )
    if tag in VOID and not children:
        return Markup(f"<{tag}{written}>" if tag in ("meta", "br") else f"<{tag}{written}/>")
    return Markup(f"<{tag}{written}>{joined(*children)}</{tag}>")


def joined(*children: Child) -> Markup:
    """Children one after the other."""
    return Markup("".join(_child(child) for child in children))


def number(value: float) -> str:
    """A coordinate: two digits are more than a screen shows."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _child(child: Child) -> str:
    if isinstance(child, Markup):
        return child
    return escape(child) if isinstance(child, str) else "".join(child)


def _name(key: str) -> str:
    return (
        key.rstrip("_") if key.endswith("_") else key if key == "viewBox" else key.replace("_", "-")
    )


def _value(value: str | float | None) -> str:
    return escape(value) if isinstance(value, str) else number(float(value or 0))
