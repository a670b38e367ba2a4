"""A checkpoint loaded by transformers: log-probabilities of texts, and greedy answers.

Quantized checkpoints of compressed-tensors compute as they will be served: weights as stored,
activations rounded to the format of the checkpoint. An FP8 KV cache rounds keys and values to E4M3
with the checkpoint's scales, or 1.0 where it has none, as vLLM does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from engine_build.datasets.dataset import Array
from engine_build.errors import SourceFault, one_line
from engine_build.sources.checkpoint import transformers_tokenizer
from onboarding.text_generation.checkpoint import shard_names
from onboarding.text_generation.texts import TextSample

ROWS = 256
"""Tokens whose log-probabilities are in memory at once, each a float for every token known."""
UNBOUNDED = 1 << 30
LARGEST_E4M3 = 448.0
_SCALE = re.compile(r"layers\.(\d+)\.self_attn\.([kv])_scale$")
KvScales = Mapping[int, tuple[float, float]]
"""Scales of keys and values by layer."""


class LanguageModel:
    """A checkpoint in memory, in the type of its weights."""

    def __init__(self, folder: Path, *, trusts_code: bool = False) -> None:
        """Load a checkpoint. Raises SourceFault where weights are missing or of other shapes."""
        self.model, self.tokenizer = _load(folder, trusts_code=trusts_code)

    @property
    def positions(self) -> int:
        """The most tokens that the model was made for."""
        config = self.model.config.get_text_config(decoder=True)
        return int(getattr(config, "max_position_embeddings", None) or UNBOUNDED)

    def tokens(self, sample: TextSample, most: int) -> list[int]:
        """Return the first tokens of a sample; a chat's messages stand in the chat template.

        Raises SourceFault where the template refuses the messages.
        """
        return sample_tokens(self.tokenizer, sample, min(most, self.positions))

    def log_probabilities(
        self, tokens: Sequence[int], kv_scales: KvScales | None = None
    ) -> Iterator[Array]:
        """Yield log-probabilities [up to 256, vocabulary] of what follows each token but the last.

        `kv_scales`: with an FP8 KV cache.
        """
        import torch

        options: dict[str, Any] = {"use_cache": False}
        if kv_scales is not None:
            cache = _fp8_cache(self.model.config, kv_scales)
            options = {"use_cache": True, "past_key_values": cache}
        with torch.inference_mode():
            ids = torch.tensor([list(tokens)], device=self.model.device)
            logits = self.model(input_ids=ids, **options).logits[0, :-1]
            for start in range(0, len(logits), ROWS):
                rows = logits[start : start + ROWS].float()
                yield torch.log_softmax(rows, -1).cpu().numpy()

    def answer(self, messages: list[dict[str, str]], most: int) -> str:
        """Return the greedy answer to a chat, of at most so many tokens."""
        import torch

        text = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        ids = self.tokenizer(text, add_special_tokens=False, return_tensors="pt")
        ids = ids.to(self.model.device)
        with torch.inference_mode():
            output = self.model.generate(
                **ids,
                max_new_tokens=most,
                do_sample=False,
                temperature=None,
                top_p=None,
                top_k=None,
                pad_token_id=self.tokenizer.pad_token_id or self.tokenizer.eos_token_id,
            )
        new = output[0, ids["input_ids"].shape[1] :]
        return str(self.tokenizer.decode(new, skip_special_tokens=True))


def sample_tokens(tokenizer: Any, sample: TextSample, most: int) -> list[int]:
    """Return the first tokens of a sample. Raises SourceFault."""
    if sample.text is not None:
        tokens: list[int] = tokenizer(sample.text, verbose=False)["input_ids"]
        return tokens[:most]
    try:
        text = tokenizer.apply_chat_template(list(sample.messages), tokenize=False)
    except Exception as error:
        raise SourceFault(
            f"the chat template refuses the messages of line {sample.line} ({one_line(error)}); "
            "correct the dataset, or the template of the checkpoint."
        ) from error
    tokens = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return tokens[:most]


def stored_kv_scales(folder: Path) -> KvScales:
    """Return the scales of an FP8 KV cache that a checkpoint holds; empty where it has none."""
    from safetensors import safe_open

    scales: dict[int, dict[str, float]] = {}
    for name in shard_names(folder):
        with safe_open(folder / name, framework="pt") as file:
            for tensor in file.keys():  # noqa: SIM118 (no mapping)
                if match := _SCALE.search(tensor):
                    value = float(file.get_tensor(tensor).float().max())
                    scales.setdefault(int(match[1]), {})[match[2]] = value
    return {layer: (pair.get("k", 1.0), pair.get("v", 1.0)) for layer, pair in scales.items()}


def _load(folder: Path, *, trusts_code: bool) -> tuple[Any, Any]:
    import transformers

    tokenizer = transformers_tokenizer(folder, trusts_code=trusts_code)
    options = {"local_files_only": True, "trust_remote_code": trusts_code}
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), **options)
        quantization = getattr(config, "quantization_config", None)
        if isinstance(quantization, dict):
            # The cache is 16 bits here; LanguageModel rounds it itself where that is asked for.
            quantization["kv_cache_scheme"] = None
        model, loading = transformers.AutoModelForCausalLM.from_pretrained(
            str(folder), config=config, dtype="auto", output_loading_info=True, **options
        )
    except Exception as error:
        raise SourceFault(
            f"transformers cannot load the checkpoint ({one_line(error)}); config.json and the "
            "tensors must be of one model that transformers knows."
        ) from error
    if missing := sorted(loading["missing_keys"]):
        raise SourceFault(
            f"config.json and the tensors disagree: {missing[0]} is missing; fetch or save both "
            "from one revision."
        )
    rows = model.get_input_embeddings().weight.shape[0]
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        raise SourceFault(
            f"the tokenizer gives token {largest}, but the model knows {rows}; name a checkpoint "
            "whose tokenizer was saved with its weights."
        )
    return model.eval(), tokenizer


def _fp8_cache(config: Any, scales: KvScales) -> Any:
    import torch
    import transformers

    def round_to_e4m3(states: Any, scale: float) -> Any:
        scaled = (states.float() / scale).clamp(-LARGEST_E4M3, LARGEST_E4M3)
        return (scaled.to(torch.float8_e4m3fn).float() * scale).to(states.dtype)

    class Fp8Cache(transformers.DynamicCache):  # type: ignore[misc]
        def update(self, keys: Any, values: Any, layer_idx: int, *rest: Any, **more: Any) -> Any:
            key_scale, value_scale = scales.get(layer_idx, (1.0, 1.0))
            pair = round_to_e4m3(keys, key_scale), round_to_e4m3(values, value_scale)
            return super().update(*pair, layer_idx, *rest, **more)

    return Fp8Cache(config=config)


def next_tokens(tokens: Sequence[int]) -> Array:
    """Return what follows each token but the last."""
    following: Array = np.asarray(tokens[1:], np.int64)
    return following
