"""The code of the functions that sign what builds left."""

from __future__ import annotations

import ast
from pathlib import Path


def function_program(base: Path, own: Path) -> str:
    """Return a function's whole code: two files as one, without the imports of each other."""
    texts = (path.read_text(encoding="utf-8") for path in (base, own))
    first, second = texts
    lines = second.splitlines(keepends=True)
    for node in ast.parse(second).body:
        if isinstance(node, ast.ImportFrom) and node.module in (
            "__future__",
            "engine_build.signing",
        ):
            for number in range(node.lineno - 1, node.end_lineno or node.lineno):
                lines[number] = ""
    return f"{first}\n\n{''.join(lines)}"
