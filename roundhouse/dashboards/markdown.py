"""The Markdown of our text widgets as HTML: headings, tables, paragraphs, `code`, **strong** and
*emphasis*.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from engine_build.card.markup import Markup, element, joined

SPANS = re.compile(r"`(?P<code>[^`]+)`|\*\*(?P<strong>[^*]+)\*\*|\*(?P<em>[^*]+)\*")
RULER = re.compile(r"\|(?:\s*-+\s*\|)+")


def rendered(markdown: str) -> Markup:
    """Blocks are parted by empty lines."""
    return joined(
        _block(block.splitlines()) for block in re.split(r"\n{2,}", markdown.strip()) if block
    )


def _block(lines: Sequence[str]) -> Markup:
    heading = re.fullmatch(r"(#+) (.+)", lines[0])
    if heading is not None:
        return element(f"h{len(heading[1])}", _spans(heading[2]))
    if lines[0].startswith("|"):
        return _table(lines)
    return element("p", _spans(" ".join(lines)))


def _table(lines: Sequence[str]) -> Markup:
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in lines
        if not RULER.fullmatch(line)
    ]
    head = element("tr", [element("th", _spans(cell)) for cell in rows[0]])
    return element(
        "table",
        head,
        [element("tr", [element("td", _spans(cell)) for cell in row]) for row in rows[1:]],
    )


def _spans(text: str) -> Markup:
    found, at = [], 0
    for match in SPANS.finditer(text):
        tag = match.lastgroup or "em"
        found += [joined(text[at : match.start()]), element(tag, match[tag])]
        at = match.end()
    return joined(*found, joined(text[at:]))
