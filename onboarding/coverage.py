"""How well one set of texts covers another: lengths, scripts, characters and words.

INT8 ranges follow from the calibration texts alone. Where users' texts are shorter, of another
script or of other characters, values leave those ranges, and the worst answers become much worse
than the mean tells.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

LENGTHS = ((1, 15), (16, 60), (61, 200), (201, None))
"""Bands of characters: a few words, a question, a sentence or two, a paragraph."""
COMMON = 0.005
"""A kind of text counts from this share of the other set on, and from FEWEST texts on."""
FEWEST = 3
PART = 0.2
"""Less than this part of the other set's share is too little."""
SEEN_CHARACTERS, SEEN_WORDS = 0.98, 0.5
"""Shares of the other set's characters and words, by occurrence, that must occur. Texts of one kind
share 65 to 80 % of their words, shell manuals and licences some 50 %."""
UNSPACED = r"\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff"
"""Thai, Lao, Japanese and Chinese."""
WORD = re.compile(rf"[{UNSPACED}]|\d|[^\W\d{UNSPACED}]+|[^\w\s]")
"""A word, a digit, a mark, or a character of a script without spaces: what tokens begin with, and
found without a tokenizer."""


def coverage_gaps(texts: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Return what `others` hold and `texts` lack, a phrase each; nothing of too few texts."""
    if not texts or len(others) < FEWEST:
        return ()
    gaps = [*_length_gaps(texts, others), *_script_gaps(texts, others)]
    for name, parts, least in (
        ("characters", tuple, SEEN_CHARACTERS),
        ("words", words, SEEN_WORDS),
    ):
        share = _share_seen(texts, others, parts)
        if share < least:
            gaps.append(f"{share:.1%} of the {name} there occur here")
    return tuple(gaps)


def words(text: str) -> Iterable[str]:
    """Return the words, digits and marks of a text."""
    return WORD.findall(text.lower())


def _share_seen(
    texts: Sequence[str], others: Sequence[str], parts: Callable[[str], Iterable[str]]
) -> float:
    seen = {part for text in texts for part in parts(text)}
    wanted = Counter(part for text in others for part in parts(text))
    if not wanted:
        return 1.0
    return sum(count for part, count in wanted.items() if part in seen) / wanted.total()


def script(character: str) -> str | None:
    """Return a letter's script as Unicode names it, such as LATIN; None for what is no letter."""
    if not character.isalpha():
        return None
    return unicodedata.name(character, "unknown").split()[0].removesuffix("-COMPATIBILITY")


def _length_gaps(texts: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    for low, high in LENGTHS:
        name = f"{low} to {high}" if high is not None else f"{low} or more"
        here, there = (
            sum(low <= len(text) and (high is None or len(text) <= high) for text in group)
            for group in (texts, others)
        )
        if _is_too_few(here, len(texts), there, len(others)):
            shares = f"{here / len(texts):.1%} here, {there / len(others):.1%} there"
            yield f"texts of {name} characters: {shares}"


def _script_gaps(texts: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    here, there = _script_counts(texts), _script_counts(others)
    for name, count in sorted(there.items()):
        if _is_too_few(here[name], len(texts), count, len(others)):
            shares = f"{here[name] / len(texts):.1%} here, {count / len(others):.1%} there"
            yield f"texts with {name.capitalize()} letters: {shares}"


def _script_counts(texts: Sequence[str]) -> Counter[str]:
    return Counter(
        name
        for text in texts
        for name in {script(character) for character in text}
        if name is not None
    )


def _is_too_few(here: int, texts: int, there: int, others: int) -> bool:
    share = there / others
    return there >= FEWEST and share >= COMMON and here / texts < PART * share
