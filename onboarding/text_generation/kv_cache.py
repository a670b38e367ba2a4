"""Bytes of cached keys and values, and the tokens that fit, as vLLM counts both.

Sources: `AttentionSpec`, `SlidingWindowSpec` and `get_kv_cache_capacity` of vLLM 0.30.0, read and
compared with its log (docs/text-generation.md).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CUDA_BLOCK_TOKENS = 16
"""Tokens of one block of the cache on a GPU; 128 on a CPU."""
FULL, SLIDING = "full_attention", "sliding_attention"
STATES = ("mamba", "ssm", "linear_attn", "linear_num", "index_topk", "conv_L_cache", "recurrent")
"""Begins of keys of config.json that name layers whose state is no keys and values."""


class ArchitectureError(ValueError):
    """What of a config.json is not understood."""


@dataclass(frozen=True, kw_only=True)
class CacheLayers:
    """Layers that cache alike.

    `heads` of keys and values before tensor parallelism; `values` numbers that one head caches of
    one token: twice the head's size, or a latent vector's. `window` in tokens; None: all of them.
    """

    count: int
    heads: int
    values: int
    window: int | None = None

    def token_bytes(self, tensor_parallel: int, dtype_bytes: int) -> int:
        """Return bytes of one token in one of these layers on one GPU.

        Each GPU holds at least one head, so fewer heads than GPUs are replicated.
        """
        return max(1, self.heads // tensor_parallel) * self.values * dtype_bytes


def cache_layers(config: Mapping[str, Any]) -> tuple[CacheLayers, ...]:
    """Return the layers of a config.json that cache, those with the same window together.

    Raises ArchitectureError where a layer keeps another state than keys and values, or a size is
    missing.
    """
    unknown = sorted(key for key in config if key.startswith(STATES) and config[key])
    if unknown:
        raise ArchitectureError(f"config.json has {unknown[0]}: such a state is not counted here")
    count = _size(config, "num_hidden_layers", "n_layer", "num_layers")
    heads = _size(config, "num_attention_heads", "n_head", "num_heads")
    if config.get("kv_lora_rank"):
        values = _size(config, "kv_lora_rank") + _size(config, "qk_rope_head_dim")
        return (CacheLayers(count=count, heads=1, values=values),)
    values = 2 * head_size(config)
    kv_heads = key_value_heads(config, heads)
    windows = Counter(_windows(config, count))
    return tuple(
        CacheLayers(count=number, heads=kv_heads, values=values, window=window)
        for window, number in sorted(windows.items(), key=lambda item: item[0] or 0)
    )


def head_size(config: Mapping[str, Any]) -> int:
    """Return the size of an attention head. Raises ArchitectureError."""
    if config.get("head_dim"):
        return _size(config, "head_dim")
    hidden = _size(config, "hidden_size", "n_embd")
    return hidden // _size(config, "num_attention_heads", "n_head", "num_heads")


def key_value_heads(config: Mapping[str, Any], heads: int) -> int:
    """Return the heads of keys and values; those of queries where the file names none."""
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    for key in ("num_key_value_heads", "num_kv_heads"):
        if config.get(key):
            return _size(config, key)
    return heads


def _windows(config: Mapping[str, Any], count: int) -> list[int | None]:
    """Return the window of each layer."""
    window = config.get("sliding_window")
    if not isinstance(window, int) or config.get("use_sliding_window") is False:
        window = None
    kinds, pattern = config.get("layer_types"), config.get("sliding_window_pattern")
    if isinstance(kinds, list) and kinds:
        strange = sorted({str(kind) for kind in kinds} - {FULL, SLIDING})
        if strange or len(kinds) != count:
            raise ArchitectureError(
                f"layer_types of config.json has {strange[0]}: such a state is not counted here"
                if strange
                else f"layer_types of config.json has {len(kinds)} entries for {count} layers"
            )
        return [window if kind == SLIDING else None for kind in kinds]
    if isinstance(pattern, int) and pattern > 1:
        return [None if (layer + 1) % pattern == 0 else window for layer in range(count)]
    return [window] * count


def _size(config: Mapping[str, Any], *names: str) -> int:
    for name in names:
        value = config.get(name)
        if type(value) is int and value > 0:
            return value
    raise ArchitectureError(f"config.json has no {names[0]}")


def bytes_read(
    layers: Sequence[CacheLayers], tensor_parallel: int, dtype_bytes: int, tokens: float
) -> float:
    """Return bytes that one GPU reads to attend from one token to `tokens` before it."""
    return sum(
        item.count
        * item.token_bytes(tensor_parallel, dtype_bytes)
        * (tokens if item.window is None else min(tokens, item.window))
        for item in layers
    )


@dataclass(frozen=True, kw_only=True)
class CacheSize:
    """A cache of `blocks` blocks of which one request of `length` tokens takes `request_blocks`."""

    blocks: int
    request_blocks: int
    length: int

    @property
    def concurrency(self) -> float:
        """Requests of `length` tokens that fit at once."""
        return self.blocks / self.request_blocks

    @property
    def tokens(self) -> int:
        """Tokens in requests of `length`, as vLLM's log counts them."""
        return int(self.concurrency * self.length)


def cache_size(
    layers: Sequence[CacheLayers],
    available_bytes: float,
    *,
    length: int,
    tensor_parallel: int = 1,
    dtype_bytes: int = 2,
    block_tokens: int = CUDA_BLOCK_TOKENS,
    step_tokens: int = 8192,
) -> CacheSize:
    """Return what fits into the bytes that one GPU has for its cache.

    vLLM cuts the layers into groups of one size, so that every block is as large: the size is the
    fewest layers of a kind, or the most where these are less than half as many more. A full layer's
    group needs blocks for all tokens of a request; a sliding one's for its window and the tokens
    that are in flight (`step_tokens`), and one more, as the window may begin inside a block. Where
    all layers are full, one group holds them, of whatever size their heads.
    """
    widths = [item.token_bytes(tensor_parallel, dtype_bytes) for item in layers]
    if all(item.window is None for item in layers):
        page = block_tokens * sum(
            item.count * width for item, width in zip(layers, widths, strict=True)
        )
        return CacheSize(
            blocks=max(0, int(available_bytes // page)),
            request_blocks=math.ceil(length / block_tokens),
            length=length,
        )
    counts = [item.count for item in layers]
    size = max(counts) if max(counts) < 1.5 * min(counts) else min(counts)
    page = size * block_tokens * max(widths)
    needed = 0
    for item in layers:
        blocks = math.ceil(length / block_tokens)
        if item.window is not None:
            blocks = math.ceil(min(item.window - 1 + step_tokens, length) / block_tokens) + 1
        needed += math.ceil(item.count / size) * blocks
    return CacheSize(
        blocks=max(0, int(available_bytes // page)), request_blocks=needed, length=length
    )
