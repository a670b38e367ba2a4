"""A file of real texts, or of their lengths, as token counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from engine_build.errors import InputRefused

AT_ONCE = 1024
TokenCounts = Callable[[Sequence[str]], Sequence[int]]


def token_counts(path: Path, counts: Callable[[], TokenCounts]) -> tuple[int, ...]:
    """Tokens of every line: the number it is when all are, or else what the tokenizer makes of it.

    Raises InputRefused.
    """
    try:
        lines = [
            line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()
        ]
    except (OSError, UnicodeDecodeError) as error:
        raise InputRefused(
            f"{path} cannot be read ({error}); give a UTF-8 file, one text or one length a line."
        ) from error
    if not lines:
        raise InputRefused(f"{path} is empty; give one text or one length a line.")
    if all(line.isascii() and line.isdigit() for line in lines):
        return _positive(path, [int(line) for line in lines])
    count = counts()
    return tuple(
        tokens
        for begin in range(0, len(lines), AT_ONCE)
        for tokens in count(lines[begin : begin + AT_ONCE])
    )


def _positive(path: Path, lengths: Sequence[int]) -> tuple[int, ...]:
    if min(lengths) < 1:
        raise InputRefused(f"{path} has a length of 0; a text has at least one token.")
    return tuple(lengths)
