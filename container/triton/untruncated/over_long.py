"""What a client is told whose texts have more tokens than the engine takes, where they are not cut.

Carried into the engine archive beside each `model.py` that refuses them. The Python server says the
same (engines/rows.py).
"""

from __future__ import annotations

from collections.abc import Sequence

TOLD = 5
"""Texts that are told one by one."""


def over_long(lengths: Sequence[int], most: int | None) -> str | None:
    """The sentence about texts of `lengths` tokens, special tokens included; None where none has
    more than `most`.
    """
    longer = (
        []
        if most is None
        else [
            f"text[{place}] has {length}" for place, length in enumerate(lengths) if length > most
        ]
    )
    if not longer:
        return None
    told = ", ".join(longer[:TOLD])
    more = f" and {len(longer) - TOLD} more are too long" if len(longer) > TOLD else ""
    takes = f"the {most} tokens that the model takes, special tokens included"
    return f"The request holds text of more than {takes}: {told}{more}; shorten or split what is longer."
