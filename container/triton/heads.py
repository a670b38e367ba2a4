"""Texts of requests, and answers of heads: labels and scores of texts, pairs and tokens.

Self-contained, on numpy alone: archives carry this file beside each `model.py` that answers with
it, and the Python server imports it, so both servers compute alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
NO_OFFSET = -1
"""Both offsets of what is no token of the text: special tokens, and the filling of short rows."""

READERS: Mapping[str, Callable[[Any], Any]] = {
    "input_ids": lambda encoding: encoding.ids,
    "attention_mask": lambda encoding: encoding.attention_mask,
    "token_type_ids": lambda encoding: encoding.type_ids,
}
"""A network's inputs of an encoding of `tokenizers`."""


def apply_activation(logits: Array, activation: str | None) -> Array:
    """Return float32 scores over the last axis: softmax, sigmoid, or the logits themselves."""
    values: Array = logits.astype(np.float32, copy=False)
    if activation == "softmax":
        powers = np.exp(values - values.max(axis=-1, keepdims=True))
        shares: Array = powers / powers.sum(axis=-1, keepdims=True)
        return shares
    if activation == "sigmoid":
        with np.errstate(over="ignore"):
            independent: Array = 1 / (1 + np.exp(-values))
        return independent
    return values


def text_answers(
    logits: Array, *, labels: Sequence[str] | None, activation: str | None
) -> dict[str, Array]:
    """Return the outputs of logits [rows, labels].

    With labels: `logits`, `labels` (bytes) and `scores`, both [rows, labels], the highest score
    first; without: `scores` alone.
    """
    scores = apply_activation(logits, activation)
    if labels is None:
        return {"scores": scores}
    order = np.argsort(-scores, axis=1, kind="stable")
    return {
        "logits": logits.astype(np.float32, copy=False),
        "labels": _names(labels)[order],
        "scores": np.take_along_axis(scores, order, axis=1),
    }


def token_classes(logits: Array) -> tuple[Array, Array]:
    """Return int32 classes and their float32 probabilities [rows, tokens]."""
    scores = apply_activation(logits, "softmax")
    return scores.argmax(axis=-1).astype(np.int32), scores.max(axis=-1)


def token_answers(
    classes: Array, scores: Array, spans: Array, *, labels: Sequence[str]
) -> dict[str, Array]:
    """Return `labels` (bytes), `scores` [rows, tokens] and `offsets` int64 [rows, tokens, 2].

    `spans` [rows, tokens, 2] are the begin and end of each token in characters, or NO_OFFSET. What
    is no token is left out, and shorter rows are filled with "", 0 and NO_OFFSET up to the longest.
    """
    is_token = spans[:, :, 0] != NO_OFFSET
    width = max(1, int(is_token.sum(axis=1).max(initial=0)))
    order = np.argsort(~is_token, axis=1, kind="stable")[:, :width]
    inside = np.take_along_axis(is_token, order, axis=1)
    names = _names(labels)[np.take_along_axis(classes, order, axis=1)]
    return {
        "labels": np.where(inside, names, b"").astype(object),
        "scores": np.where(inside, np.take_along_axis(scores, order, axis=1), np.float32(0)),
        "offsets": np.take_along_axis(spans, order[:, :, None], axis=1).astype(np.int64),
    }


def padded_spans(rows: Sequence[Array], length: int) -> Array:
    """Return int32 [rows, length, 2] of rows [tokens, 2], filled with NO_OFFSET."""
    spans: Array = np.full((len(rows), length, 2), NO_OFFSET, np.int32)
    for place, row in enumerate(rows):
        spans[place, : len(row)] = row
    return spans


def token_spans(encoding: Any) -> Array:
    """Return int32 [tokens, 2] of an encoding of `tokenizers`; NO_OFFSET for special tokens."""
    spans: Array = np.array(encoding.offsets, np.int32).reshape(-1, 2)
    spans[np.array(encoding.special_tokens_mask, bool)] = NO_OFFSET
    return spans


def request_rows(tensors: Mapping[str, Any], prefix: str) -> list[Any]:
    """Return the texts of a request's one tensor, or the pairs of its two, a prompt before each.

    Raises ValueError with the sentence for the client.
    """
    first, *rest = [_texts(name, tensor, prefix) for name, tensor in tensors.items()]
    return list(zip(first, *rest, strict=True)) if rest else first


def _texts(name: str, tensor: Any, prefix: str) -> list[Any]:
    if tensor is None:
        raise ValueError(f"Input {name!r} is missing.")
    try:
        return [
            prefix + (item.decode("utf-8") if isinstance(item, bytes) else str(item))
            for item in tensor.as_numpy().reshape(-1)
        ]
    except UnicodeDecodeError as fault:
        raise ValueError(
            f"Input {name!r} holds text that is not UTF-8: {fault.reason} at byte {fault.start}."
        ) from fault


class TextReader:
    """Requests of texts or of pairs inside Triton: tokenized in one call, cut or refused."""

    def __init__(
        self, tokenizer: Any, manifest: Mapping[str, Any], inputs: Sequence[str], *, has_spans: bool
    ) -> None:
        """Take the packaged tokenizer without its padding, and run it once.

        `inputs` are a request's tensors, one or the two of a pair; `has_spans`: somebody asks where
        in the text a token lies.
        """
        import manifest_check  # type: ignore[import-not-found]

        self._check, self._inputs = manifest_check, tuple(inputs)
        self._prompts = manifest.get("prompts")
        longest = manifest_check.longest_sequence(manifest)
        truncates = manifest.get("auto_truncate", True)
        self._limit = None if truncates else longest
        padding = tokenizer.padding
        self._pad_id = 0 if padding is None else int(padding["pad_id"])
        tokenizer.no_padding()
        if not truncates:
            tokenizer.no_truncation()
        elif longest is not None:
            tokenizer.enable_truncation(max_length=longest)
        # Only the slower call knows where in the text a token lies.
        self._encode = tokenizer.encode_batch if has_spans else tokenizer.encode_batch_fast
        self._encode(["warm up"])

    def read(
        self, requests: Sequence[Any], tensor_of: Callable[[Any, str], Any]
    ) -> list[list[Any] | ValueError]:
        """Return each request's encodings, or the fault that its client gets."""
        inputs = [self._rows(request, tensor_of) for request in requests]
        rows = [row for texts in inputs if isinstance(texts, list) for row in texts]
        encodings = iter(self._encode(rows))
        return [
            self._refuse_over_long([next(encodings) for _ in texts])
            if isinstance(texts, list)
            else texts
            for texts in inputs
        ]

    def array(self, name: str, encodings: Sequence[Any], length: int, dtype: Any) -> Array:
        """Return an input of the network, [rows, length], filled up as the tokenizer says."""
        fill = self._pad_id if name == "input_ids" else 0
        rows: Array = np.full((len(encodings), length), fill, dtype)
        for place, encoding in enumerate(encodings):
            rows[place, : len(encoding)] = READERS[name](encoding)
        return rows

    def _rows(self, request: Any, tensor_of: Callable[[Any, str], Any]) -> list[Any] | ValueError:
        try:
            prefix = self._check.prompt_prefix(request.parameters(), self._prompts)
            return request_rows({name: tensor_of(request, name) for name in self._inputs}, prefix)
        except ValueError as fault:
            return fault

    def _refuse_over_long(self, encodings: list[Any]) -> list[Any] | ValueError:
        sentence = self._check.over_long_texts(list(map(len, encodings)), self._limit)
        return encodings if sentence is None else ValueError(sentence)


class Head:
    """The head of one served model, by its manifest."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        """Take `task`, `labels`, `activation` and the names of `outputs`.

        What a postprocessing reads are the head's outputs; the manifest's are then its own.
        """
        after = manifest.get("postprocessing")
        outputs = manifest["outputs"] if after is None else after["inputs"]
        self.outputs = tuple(output["name"] for output in outputs)
        self.is_of_tokens = manifest["task"] == "token-classification"
        self._labels: Sequence[str] | None = manifest.get("labels")
        if manifest["task"] == "text-ranking":
            self._labels = None
        self._activation: str | None = manifest.get("activation")

    def answers(self, logits: Array, spans: Array | None = None) -> list[Array]:
        """Return the outputs of one request in the order of `outputs`; `spans` as token_answers."""
        if self.is_of_tokens:
            assert spans is not None and self._labels is not None
            classes, scores = token_classes(logits)
            named = token_answers(classes, scores, spans, labels=self._labels)
        else:
            named = text_answers(logits, labels=self._labels, activation=self._activation)
        return [named[name] for name in self.outputs]


def has_head(manifest: Mapping[str, Any]) -> bool:
    """Return whether a head stands behind the network; older classifiers answer logits alone."""
    return manifest.get("activation") is not None


def _names(labels: Sequence[str]) -> Array:
    names: Array = np.array([label.encode() for label in labels], dtype=object)
    return names
