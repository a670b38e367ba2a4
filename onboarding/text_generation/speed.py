"""Times of a copy at a concurrency: estimates from bandwidth, rate, and what vLLM makes of them.

While `n` requests are answered at once, each step reads the weights and the n caches once and gives
n tokens; between steps the prompts of new requests are read, one for every `output` tokens of a
request. So a token takes: bytes / bandwidth + layers x a layer's time in that format
+ n x prompt time / output tokens. Fitted to and compared with an H200 (docs/text-generation.md); on
other GPUs assumed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.text_generation.kv_cache import CacheLayers, bytes_read
from onboarding.text_generation.platforms import (
    FormatSpeed,
    Gpu,
    SchemeRow,
    datasheet_shares,
    format_speed,
)
from onboarding.text_generation.weights import Weights

FLOPS_A_PARAMETER = 2
"""Of one token: a multiplication and an addition."""
EIGHT_BITS, FOUR_BITS = 8.5, 5.0
"""Most bits of a weight that count as such, scales included."""
LARGEST_CONCURRENCY = 4096


@dataclass(frozen=True, kw_only=True)
class Speed:
    """One copy on one GPU type; lengths in tokens, times in seconds."""

    gpu: Gpu
    weights: Weights
    layers: Sequence[CacheLayers]
    scheme: SchemeRow
    kv_bytes: int
    tensor_parallel: int
    mean_prompt: int
    mean_output: int

    @property
    def is_known(self) -> bool:
        """True where the GPU's bandwidth and rate are known."""
        return self.gpu.gigabytes_per_second is not None and self.gpu.bf16_teraflops is not None

    def prompt_seconds(self, tokens: int) -> float:
        """Return the time to read a prompt, alone on the copy's GPUs."""
        work = FLOPS_A_PARAMETER * self.weights.active_parameters * tokens
        rate = (self.gpu.bf16_teraflops or 0.0) * 1e12 * self._format.prefill
        if not self.gpu.measured:
            rate *= datasheet_shares().rate
        return work / (rate * self.tensor_parallel)

    def token_seconds(self, concurrency: int) -> float:
        """Return the time between two tokens of a request while so many are answered at once."""
        tokens = self.mean_prompt + self.mean_output / 2
        caches = concurrency * bytes_read(self.layers, self.tensor_parallel, self.kv_bytes, tokens)
        bandwidth = (self.gpu.gigabytes_per_second or 0.0) * 1e9
        if not self.gpu.measured:
            bandwidth *= datasheet_shares().bandwidth
        layers = sum(item.count for item in self.layers) * self._format.layer_us * 1e-6
        prompts = concurrency * self.prompt_seconds(self.mean_prompt) / self.mean_output
        return (self.weights.gpu_bytes + caches) / bandwidth + layers + prompts

    def first_token_seconds(self, prompt: int, concurrency: int) -> float:
        """Return the time to the first token of a prompt that finds one other before it."""
        others = self.prompt_seconds(self.mean_prompt) if concurrency > 1 else 0.0
        return self.prompt_seconds(prompt) + others + self.token_seconds(concurrency)

    def largest_concurrency(self, token_seconds: float) -> int:
        """Return how many requests are answered at once within a time between two tokens."""
        low, high = 0, LARGEST_CONCURRENCY
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if self.token_seconds(middle) <= token_seconds else (low, middle - 1)
            )
        return low

    @property
    def _format(self) -> FormatSpeed:
        bits = self.scheme.weight_bits
        if bits > EIGHT_BITS:
            return format_speed("sixteen_bit")
        if bits > FOUR_BITS:
            return format_speed("eight_bit")
        return format_speed("four_bit_weight_only" if self.scheme.weight_only else "four_bit")
