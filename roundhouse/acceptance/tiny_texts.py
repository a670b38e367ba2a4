"""The words of the tiny network, and the texts that calibrate it and that it is asked."""

from __future__ import annotations

from itertools import product

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
SUBJECTS = ("bird", "train", "cat", "dog", "engine", "signal", "tree", "house")
ACTS = ("ran", "sat", "waited", "turned", "slept", "shone")
ENDS = ("under the blue track", "over a green mat", "on the fast red line", "in slow rain")
VOCABULARY = (
    *SPECIAL,
    *sorted({word for part in (*SUBJECTS, *ACTS, *ENDS, "the") for word in part.split()}),
)
TEXTS = tuple(f"the {who} {act} {end}" for who, act, end in product(SUBJECTS, ACTS, ENDS))
"""192 texts: a third calibrates, the others are compared (at least 100 are needed to judge)."""


def shuffled_texts() -> tuple[str, ...]:
    """Return TEXTS so that each third holds every subject, act and end."""
    return TEXTS[::3] + TEXTS[1::3] + TEXTS[2::3]
