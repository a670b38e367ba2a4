"""What follows an encoder: token vectors pooled to one vector, and the checkpoint's heads.

The poolings are those of sentence-transformers' Pooling, written with operators that TensorRT takes
in every precision: no index of a token is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

LOWEST = -65504.0
"""The lowest number of FP16; it stands where a token is padding, and a maximum never takes it."""
LEAST = 1e-9
"""Added rows of a batch may hold no token."""


class PoolingHead(torch.nn.Module):  # type: ignore[misc]
    """Token vectors [batch, sequence, width] and their mask [batch, sequence] to one vector a row.

    Several poolings are concatenated in their order; `heads` are modules of sentence-transformers.
    `normalize` divides the vectors by their lengths in the end.
    """

    def __init__(
        self, poolings: Sequence[str], heads: Sequence[Any] = (), *, normalize: bool = False
    ) -> None:
        super().__init__()
        self.poolings = tuple(poolings)
        self.heads = torch.nn.ModuleList(heads)
        self.normalize = normalize

    def forward(self, tokens: Any, mask: Any) -> Any:
        """Return vectors [batch, values]."""
        pooled = [POOLERS[name](tokens, mask) for name in self.poolings]
        features = {"sentence_embedding": pooled[0] if len(pooled) == 1 else torch.cat(pooled, 1)}
        for head in self.heads:
            features = head(features)
        vectors = features["sentence_embedding"]
        return torch.nn.functional.normalize(vectors, p=2, dim=1) if self.normalize else vectors


def _cls(tokens: Any, mask: Any) -> Any:
    # Rows are padded on the right, so the first token is never padding.
    return tokens[:, 0]


def _max(tokens: Any, mask: Any) -> Any:
    return tokens.masked_fill(mask.unsqueeze(-1) == 0, LOWEST).amax(1)


def _mean(tokens: Any, mask: Any) -> Any:
    return _weighted(tokens, mask, 1.0)


def _mean_sqrt_len(tokens: Any, mask: Any) -> Any:
    return _weighted(tokens, mask, 0.5)


def _weighted(tokens: Any, weights: Any, power: float) -> Any:
    column = weights.unsqueeze(-1).to(tokens.dtype)
    total = column.sum(1).clamp(min=LEAST)
    return (tokens * column).sum(1) / (total if power == 1.0 else total.sqrt())


def _weighted_mean(tokens: Any, mask: Any) -> Any:
    """Weigh each token by its place in the row; shares of the row's length fit FP16."""
    length = mask.shape[1]
    places = torch.arange(1, length + 1, device=mask.device).to(tokens.dtype)
    return _weighted(tokens, mask * (places / length), 1.0)


def _last(tokens: Any, mask: Any) -> Any:
    """Take the last token that is no padding: the one whose right neighbour is none."""
    after = torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)
    is_last = (mask * (1 - after)).unsqueeze(-1).to(tokens.dtype)
    return (tokens * is_last).sum(1)


POOLERS: dict[str, Callable[[Any, Any], Any]] = {
    "cls": _cls,
    "max": _max,
    "mean": _mean,
    "mean_sqrt_len_tokens": _mean_sqrt_len,
    "weightedmean": _weighted_mean,
    "lasttoken": _last,
}
