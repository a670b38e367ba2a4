"""Markdown for a forge: text of a pull request as harmless words, bodies within their limit."""

from __future__ import annotations

import re
import unicodedata

MOST_CHARACTERS = 65_000
"""Of a comment, an issue and a pull request: GitHub takes 65,536, and refuses more with 422."""
CUT = "\n\n… cut at 65,000 characters.\n"
INVISIBLE = frozenset(("Cc", "Cf", "Zl", "Zp", "Cs", "Co"))
"""Unicode categories of control and formatting characters."""
END = "\u200b"
"""A zero-width space: ends what would be a mention, a reference, an address or an entity."""


def markdown(text: str) -> str:
    """Return text that Markdown shows as it is: no link, mention, reference, tag, list or code.

    Control and formatting characters (line breaks, direction marks) become spaces.
    """
    plain = "".join(" " if unicodedata.category(char) in INVISIBLE else char for char in text)
    plain = " ".join(plain.split())
    escaped = re.sub(r"([\\`*_{}\[\]()<>|!~])", r"\\\1", plain)
    # What begins a list, a rule or a heading, where the text begins a line.
    escaped = re.sub(r"^([-+=](?!$)|\d+(?=[.)](?: |$)))", rf"{END}\1", escaped)
    # GitHub refers by @ # GH-, GitLab by @ # ! ~ $ % & too, after Markdown took the backslashes.
    return re.sub(r"([@#&!~$%]|://|www\.|\bGH-)", rf"\1{END}", escaped, flags=re.IGNORECASE)


def cut_body(text: str) -> str:
    """Return a text within the forge's limit, cut between two lines."""
    if len(text) <= MOST_CHARACTERS:
        return text
    kept = text[: MOST_CHARACTERS - len(CUT)]
    return kept[: kept.rfind("\n")] + CUT
