"""Renders jinja2 templates to HTML: every text is escaped, a missing value is an error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

SHARED = Path(__file__).parent / "templates"


def render(
    template: str,
    values: Mapping[str, Any],
    *,
    folder: Path = SHARED,
    filters: Mapping[str, Callable[..., Any]] | None = None,
) -> str:
    """Return a template's text; templates of `folder` may use those shared by all reports."""
    environment = _environment(folder)
    environment.filters |= filters or {}
    return environment.get_template(template).render(values)


def macro(name: str) -> Callable[[str], Markup]:
    """Return a macro of the parts that reports share, such as `badge` or `code`."""
    function: Callable[[str], Markup] = getattr(
        _environment(SHARED).get_template("parts.html.j2").module, name
    )
    return function


def _environment(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader([folder, SHARED]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def milliseconds(value: float | None) -> str:
    """Format a latency to three digits; a dash for None."""
    if value is None:
        return "–"
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ms"


def per_second(value: float) -> str:
    """Format requests, or rows, a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
