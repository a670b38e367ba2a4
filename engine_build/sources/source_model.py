"""The source model in PyTorch: the reference that every network and engine is compared with."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import transformers

from engine_build.datasets.dataset import ATTENTION_MASK, Array, Feed
from engine_build.errors import SourceFault
from engine_build.machine import cores, return_memory
from engine_build.sources.checkpoint import TokenizerFile, configuration
from engine_build.sources.embedding import EmbeddingPipeline, ReferenceEmbedder, embedding_pipeline

if TYPE_CHECKING:
    from onboarding.values import Task

POOLER = "pooler."
"""Weights of a head that no task uses; some checkpoints lack them."""


class SentenceEmbedder(torch.nn.Module):  # type: ignore[misc]
    """An encoder and its pipeline: vectors [batch, width].

    Pools the last hidden states by their mean over the attention mask or by the first token.
    """

    output = "sentence_embedding"

    def __init__(self, encoder: Any, inputs: tuple[str, ...], pipeline: EmbeddingPipeline) -> None:
        super().__init__()
        self.encoder = encoder
        self.inputs = inputs
        self.pipeline = pipeline

    def forward(self, *tensors: Any) -> Any:
        """Takes the inputs in the order of `inputs`."""
        named = dict(zip(self.inputs, tensors, strict=True))
        hidden = self.encoder(**named).last_hidden_state
        if self.pipeline.pooling == "cls":
            pooled = hidden[:, 0]
        else:
            mask = named[ATTENTION_MASK].unsqueeze(-1).to(hidden.dtype)
            pooled = (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)
        if not self.pipeline.normalize:
            return pooled
        return torch.nn.functional.normalize(pooled, p=2, dim=1)


class Classifier(torch.nn.Module):  # type: ignore[misc]
    """A model with a classification head: logits [batch, classes]."""

    output = "logits"

    def __init__(self, encoder: Any, inputs: tuple[str, ...]) -> None:
        super().__init__()
        self.encoder = encoder
        self.inputs = inputs

    def forward(self, *tensors: Any) -> Any:
        """Takes the inputs in the order of `inputs`."""
        return self.encoder(**dict(zip(self.inputs, tensors, strict=True))).logits


class SourceModel:
    """A checkpoint, loaded in float32; pickled weights and remote code are refused.

    `release` gives the weights' memory back; the next call of `rows` loads them again.
    """

    def __init__(self, folder: Path, *, longest: int, task: Task = "text-embedding") -> None:
        torch.set_num_threads(cores())
        self._folder = folder
        self._task = task
        self._pipeline = embedding_pipeline(folder) if task == "text-embedding" else None
        encoder = _encoder(folder, task)
        _refuse_broken_weights(encoder)
        _refuse_long_sequences(encoder, longest)
        self.inputs = _inputs(encoder)
        self.labels = _labels(encoder.config) if task == "text-classification" else None
        self._module: Any = self._assembled(encoder)
        self.output = str(self._module.output)
        vocabulary = int(encoder.config.get_text_config().vocab_size)
        self.tokenizer = TokenizerFile(
            folder, vocabulary=vocabulary, padding=getattr(encoder.config, "pad_token_id", None)
        )

    @property
    def module(self) -> Any:
        """The model as `torch.nn.Module`, in evaluation mode."""
        if self._module is None:
            self._module = self._assembled(_encoder(self._folder, self._task))
        return self._module

    @property
    def embeds(self) -> bool:
        """True when the answers are vectors, which sentence-transformers gives too."""
        return self._pipeline is not None

    def reference_embedder(self, longest: int) -> ReferenceEmbedder:
        """Load sentence-transformers' own reading of the checkpoint."""
        return ReferenceEmbedder(self._folder, longest=longest)

    def release(self) -> None:
        """Forgets the weights."""
        self._module = None
        return_memory()

    def rows(self, feed: Feed) -> Array:
        """One float32 row per row of the feed."""
        with torch.inference_mode():
            rows: Array = self.module(
                *(torch.from_numpy(feed[name]) for name in self.inputs)
            ).numpy()
        return rows

    def _assembled(self, encoder: Any) -> Any:
        if self._pipeline is None:
            return Classifier(encoder, self.inputs).eval()
        return SentenceEmbedder(encoder, self.inputs, self._pipeline).eval()


def _encoder(folder: Path, task: Task) -> Any:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    if task == "text-classification":
        kind = transformers.AutoModelForSequenceClassification
        _refuse_other_problems(configuration(folder))
    else:
        kind = transformers.AutoModel
    try:
        encoder, loading = kind.from_pretrained(
            str(folder),
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except Exception as error:
        reason = " ".join(str(error).split())[:300]
        raise SourceFault(
            f"the checkpoint cannot be loaded ({reason}); it must be of transformers, with "
            "safetensors."
        ) from error
    _refuse_missing_weights(loading["missing_keys"], encoder)
    return encoder


def _inputs(encoder: Any) -> tuple[str, ...]:
    takes_types = "token_type_ids" in inspect.signature(encoder.forward).parameters
    has_types = getattr(encoder.config, "type_vocab_size", 0) > 1
    return (
        "input_ids",
        ATTENTION_MASK,
        *(("token_type_ids",) if takes_types and has_types else ()),
    )


def _labels(config: Any) -> tuple[str, ...]:
    return tuple(str(config.id2label[index]) for index in range(int(config.num_labels)))


def _refuse_other_problems(config: dict[str, Any]) -> None:
    """Scores of several labels at once, and a number, are judged otherwise than classes."""
    problem = config.get("problem_type")
    if problem is None and len(config.get("id2label", ("0", "1"))) == 1:
        problem = "regression"
    if problem not in (None, "single_label_classification"):
        raise SourceFault(
            f"the checkpoint's problem type is {problem}, whose answer is no class; allowed: "
            "single_label_classification. Export it to ONNX yourself, and serve it as task "
            "tensors with metric relative_error."
        )


def _refuse_missing_weights(missing: set[str], encoder: Any) -> None:
    """Refuse missing weights: transformers fills what a checkpoint lacks with random numbers."""
    needed = sorted(
        name
        for name in missing
        if not name.removeprefix(f"{encoder.base_model_prefix}.").startswith(POOLER)
    )
    if needed:
        raise SourceFault(
            f"the checkpoint lacks {len(needed)} weights that {type(encoder).__name__} needs, such "
            f"as {needed[0]}; name a checkpoint that was trained for this task, or correct the "
            "task."
        )


def _refuse_broken_weights(encoder: Any) -> None:
    for name, weight in encoder.state_dict().items():
        if weight.is_floating_point() and not bool(torch.isfinite(weight).all()):
            raise SourceFault(
                f"weight {name} of the source holds NaN or Inf; train or save the checkpoint again."
            )


def _refuse_long_sequences(encoder: Any, longest: int) -> None:
    positions = _positions(encoder)
    if positions is not None and longest > positions:
        raise SourceFault(
            f"the source takes at most {positions} tokens, but a profile goes up to {longest}; "
            "lower `sequence` in the model file."
        )


def _positions(encoder: Any) -> int | None:
    """Most tokens that have a position.

    RoBERTa and its kin count positions from the padding token's number + 1.
    """
    positions: int | None = getattr(encoder.config, "max_position_embeddings", None)
    offsets = [
        module.padding_idx + 1
        for name, module in encoder.named_modules()
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None
    ]
    return None if positions is None else positions - max(offsets, default=0)
