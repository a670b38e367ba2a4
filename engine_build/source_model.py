"""The source model in PyTorch: the reference that every network and engine is compared with."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import torch
import transformers

from engine_build.errors import SourceFault
from engine_build.feed import Array, Feed
from engine_build.machine import cores

MODULES = {"Transformer", "Pooling", "Normalize"}


class SentenceEmbedder(torch.nn.Module):  # type: ignore[misc]
    """An encoder, the mean of its last hidden states over the attention mask, and L2 normalisation: [batch, width]."""

    def __init__(self, encoder: Any, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.encoder = encoder
        self.inputs = inputs

    def forward(self, *tensors: Any) -> Any:
        """Takes the inputs in the order of `inputs`."""
        named = dict(zip(self.inputs, tensors, strict=True))
        hidden = self.encoder(**named).last_hidden_state
        mask = named["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)


class SourceModel:
    """A checkpoint, loaded in float32; pickled weights and remote code are refused."""

    def __init__(self, folder: Path, *, longest: int) -> None:
        torch.set_num_threads(cores())
        _refuse_other_poolings(folder)
        encoder = _encoder(folder)
        _refuse_broken_weights(encoder)
        config = encoder.config
        positions = getattr(config, "max_position_embeddings", longest)
        if longest > positions:
            raise SourceFault(
                f"the source takes at most {positions} tokens, but a profile goes up to {longest}; "
                "lower `sequence` in the model file."
            )
        self.inputs = _inputs(encoder)
        self.module = SentenceEmbedder(encoder, self.inputs).eval()
        self.width = int(config.hidden_size)
        self.vocabulary = int(config.vocab_size)
        self.tokenizer = folder / "tokenizer.json"
        if not self.tokenizer.is_file():
            raise SourceFault("the checkpoint has no tokenizer.json; save it with a fast tokenizer of transformers.")

    def rows(self, feed: Feed) -> Array:
        """One normalised float32 row per row of the feed."""
        with torch.inference_mode():
            rows: Array = self.module(*(torch.from_numpy(feed[name]) for name in self.inputs)).numpy()
        return rows


def _encoder(folder: Path) -> Any:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        return transformers.AutoModel.from_pretrained(
            str(folder),
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceFault(f"the checkpoint cannot be loaded ({reason}); it must be of transformers, with safetensors.") from error


def _inputs(encoder: Any) -> tuple[str, ...]:
    takes_types = "token_type_ids" in inspect.signature(encoder.forward).parameters
    has_types = getattr(encoder.config, "type_vocab_size", 0) > 1
    return ("input_ids", "attention_mask", *(("token_type_ids",) if takes_types and has_types else ()))


def _refuse_broken_weights(encoder: Any) -> None:
    for name, weight in encoder.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise SourceFault(f"weight {name} of the source holds NaN or Inf; train or save the checkpoint again.")


def _refuse_other_poolings(folder: Path) -> None:
    """A sentence-transformers checkpoint says how it pools; another way than ours would be silently wrong."""
    modules = {str(module["type"]).rsplit(".", 1)[-1] for module in _json(folder / "modules.json", [])}
    if not modules <= MODULES:
        others, allowed = ", ".join(sorted(modules - MODULES)), ", ".join(sorted(MODULES))
        raise SourceFault(f"the checkpoint has modules {others}; allowed: {allowed}.")
    pooling = _json(folder / "1_Pooling" / "config.json", {})
    chosen = [name for name, value in pooling.items() if name.startswith("pooling_mode_") and value is True]
    if chosen not in ([], ["pooling_mode_mean_tokens"]):
        raise SourceFault(f"the checkpoint pools by {', '.join(chosen)}; allowed: pooling_mode_mean_tokens.")


def _json(path: Path, default: Any) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else default
    except ValueError as error:
        raise SourceFault(f"{path.name} of the checkpoint is no JSON ({error}); fetch or save it again.") from error
