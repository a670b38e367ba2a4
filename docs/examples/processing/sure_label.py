"""Answers the classifier's best label, or `unsure` where its score is too low."""

import numpy as np

Tensors = dict[str, np.ndarray]
LEAST = 0.4


def postprocess(outputs: Tensors) -> Tensors:
    """Return `label` and `score` [tickets, 1] of `labels` and `scores`, the highest first."""
    scores = outputs["scores"][:, :1]
    labels = np.where(scores >= LEAST, outputs["labels"][:, :1], b"unsure")
    return {"label": labels.astype(object), "score": scores}
