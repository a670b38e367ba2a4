"""Pages of reports: jinja2 templates, tables, and numbers as they are shown.

Every text is escaped, and a missing value is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

SHARED = Path(__file__).parent / "templates"
DASH = "–"
Column = tuple[str, str, Callable[[Any], object]]
"""Its head, its class in the style sheet, and the cell of a record."""
Table = tuple[list[tuple[str, str]], list[tuple[list[object], bool]]]
"""What the macro `table` takes: heads with classes, rows of cells with whether they stand out."""


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


def table(
    columns: Sequence[Column],
    records: Iterable[Any],
    stands_out: Callable[[Any], bool] = lambda record: False,
) -> Table:
    """Return the table of some records, one row each."""
    rows = [([cell(item) for _, _, cell in columns], stands_out(item)) for item in records]
    return [(head, kind) for head, kind, _ in columns], rows


def size(count: int | None) -> str:
    """Format bytes; a dash for None."""
    if count is None:
        return DASH
    return f"{count / 1e6:,.1f} MB" if count >= 100_000 else f"{count:,} bytes"


def milliseconds(value: float | None) -> str:
    """Format a latency to three digits; a dash for None."""
    if value is None:
        return DASH
    digits = 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} ms"


def per_second(value: float | None) -> str:
    """Format requests, or rows, a second; a dash for None."""
    if value is None:
        return DASH
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
