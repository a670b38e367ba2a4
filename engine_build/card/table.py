"""Tables, badges and pairs of the card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine_build.card.markup import Child, Markup, element, joined

BADGES = {"pass": "good", "fail": "bad", "not enough data": "unsure"}


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column's head; numbers stand to the right."""

    head: str
    kind: str | None = "number"


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of cells; the published engine's is its own."""

    cells: Sequence[Child]
    own: bool = False


def table(
    columns: Sequence[Column], lines: Sequence[Line], *, caption: str | None = None
) -> Markup:
    """A table that scrolls sideways alone when the screen is narrow."""
    heads = [element("th", column.head, scope="col", class_=column.kind) for column in columns]
    body = [_line(columns, line) for line in lines]
    told = [] if caption is None else [element("caption", caption)]
    whole = element("table", told, element("thead", element("tr", heads)), element("tbody", body))
    return element("div", whole, class_="scroll", tabindex="0")


def badge(verdict: str) -> Markup:
    """A verdict by colour and by word."""
    return element("span", verdict, class_=f"badge {BADGES[verdict]}")


def pairs(items: Sequence[tuple[str, Child]]) -> Markup:
    """Names with their values."""
    return element(
        "dl",
        [joined(element("dt", name), element("dd", value)) for name, value in items],
        class_="pairs",
    )


def section(title: str, *children: Child, note: str | None = None) -> Markup:
    """A titled part of the card."""
    told = [] if note is None else [element("p", note, class_="note")]
    return element("section", element("h2", title), told, *children)


def figure(caption: str, chart: Markup) -> Markup:
    """A chart with its title."""
    return element("figure", element("figcaption", caption), chart)


def folded(summary: str, *children: Child) -> Markup:
    """Detail that opens when it is asked for."""
    return element("details", element("summary", summary), *children)


def code(text: str) -> Markup:
    """A name or digest."""
    return element("code", text)


def _line(columns: Sequence[Column], line: Line) -> Markup:
    cells = [
        element("td", cell, class_=column.kind)
        for column, cell in zip(columns, line.cells, strict=True)
    ]
    return element("tr", cells, class_="own" if line.own else None)
