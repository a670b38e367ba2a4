"""The code of a BLS: which model answers is decided by the one before."""

from collections.abc import Callable

import numpy as np

LEAST = 0.6
Tensors = dict[str, np.ndarray]


def execute(inputs: Tensors, call: Callable[[str, Tensors], Tensors]) -> Tensors:
    """Return the small model's scores, and the large one's where those are unsure."""
    scores = call("small", {"text": inputs["text"]})["scores"]
    unsure = scores.max(axis=1) < LEAST
    if unsure.any():
        scores = scores.copy()
        scores[unsure] = call("large", {"text": inputs["text"][unsure]})["scores"]
    return {"scores": scores, "is_large": unsure[:, None].astype(np.int64)}
