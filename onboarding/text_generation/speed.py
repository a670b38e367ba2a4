"""Times of a copy at a concurrency: estimates from bandwidth and rate, and the shares vLLM reaches.

While `n` requests are answered at once, each step reads the weights and the n caches once and gives
n tokens; between steps the prompts of new requests are read, one for every `output` tokens of a
request. So a token takes: bytes / bandwidth + n x prompt time / output tokens. Fitted to and
compared with an H200 (docs/text-generation.md); on other GPUs assumed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onboarding.text_generation.kv_cache import CacheLayers, bytes_read
from onboarding.text_generation.platforms import Gpu, SchemeRow, efficiency
from onboarding.text_generation.weights import Weights

FLOPS_A_PARAMETER = 2
"""Of one token: a multiplication and an addition."""
EIGHT_BITS = 8.5
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
        rate = (self.gpu.bf16_teraflops or 0.0) * 1e12 * self._share("prefill")
        return work / (rate * self.tensor_parallel)

    def token_seconds(self, concurrency: int) -> float:
        """Return the time between two tokens of a request while so many are answered at once."""
        tokens = self.mean_prompt + self.mean_output / 2
        caches = concurrency * bytes_read(self.layers, self.tensor_parallel, self.kv_bytes, tokens)
        bandwidth = (self.gpu.gigabytes_per_second or 0.0) * 1e9 * self._share("decode")
        prompts = concurrency * self.prompt_seconds(self.mean_prompt) / self.mean_output
        return (self.weights.gpu_bytes + caches) / bandwidth + prompts

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

    def _share(self, name: str) -> float:
        kind = "eight_bit" if self.scheme.weight_bits <= EIGHT_BITS else "sixteen_bit"
        if self.scheme.weight_only and name == "prefill":
            kind = "sixteen_bit"
        own: float = getattr(efficiency(kind), name)
        datasheet: float = getattr(efficiency("datasheet"), name)
        return own if self.gpu.measured else own * datasheet
