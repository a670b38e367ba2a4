"""A fault of any library in few words."""

from __future__ import annotations


def first_line(fault: BaseException) -> str:
    """The first line that says something, or the fault's type where it says nothing."""
    return next(filter(str.strip, str(fault).splitlines()), type(fault).__name__)
