"""What goes into a network: arrays by input name, and the shapes they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Feed = dict[str, Array]
"""By network input name; rows on axis 0."""
ATTENTION_MASK = "attention_mask"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Rows of a batch and, where there is a sequence axis, tokens of a row."""

    batch: int
    sequence: int | None = None

    def __str__(self) -> str:
        return str(self.batch) if self.sequence is None else f"{self.batch} x {self.sequence}"
