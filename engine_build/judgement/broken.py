"""NaN and Inf in answers: named, and never scored."""

from __future__ import annotations

import numpy as np

from engine_build.errors import BudgetMissed, SourceFault
from engine_build.samples.feed import Array


class BrokenAnswers(BudgetMissed):
    """An engine answers NaN or Inf."""


def refuse_broken(subject: str, found: Array, reference: Array) -> None:
    """Raises SourceFault when the answers do not fit the reference or it is broken itself, and
    BrokenAnswers for the engine's.
    """
    if found.shape != reference.shape:
        raise SourceFault(
            f"{subject} answers with shape {list(found.shape)}, the source model with {list(reference.shape)}; "
            "export the source again, or delete the work folder."
        )
    if (told := _told(reference)) is not None:
        raise SourceFault(
            f"the source model gives {told}; repair its weights, or the samples, before it is judged by."
        )
    if (told := _told(found)) is not None:
        raise BrokenAnswers(
            f"{subject} gives {told}: values beyond its precision's range are the usual cause; ask for precision bf16 or fp32, "
            "or keep the layers that overflow in fp32."
        )


def _told(rows: Array) -> str | None:
    broken = np.flatnonzero(~np.isfinite(rows).all(axis=1))
    return (
        f"NaN or Inf for {len(broken)} of {len(rows)} samples, the first being sample {broken[0] + 1}"
        if len(broken)
        else None
    )
