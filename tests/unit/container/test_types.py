"""The first line of a fault."""

from __future__ import annotations

import pytest

from container.server.types import first_line


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (RuntimeError("no kernel\nat node 7"), "no kernel"),
        (RuntimeError("\n  \nno kernel"), "no kernel"),
        (RuntimeError(), "RuntimeError"),
        (MemoryError("\n"), "MemoryError"),
    ],
)
def test_first_line_is_the_first_that_is_not_blank(fault, words):
    assert first_line(fault) == words
