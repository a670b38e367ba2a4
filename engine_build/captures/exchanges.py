"""Captured invocations as samples of a task, and answers as rows like the network's own.

Scores become logits again: the logarithm of a softmax, the logit of a sigmoid. So one comparison
judges whatever form a client asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from container.triton.images import file_bytes, pixel_count
from engine_build.captures.bodies import Body, Captured, Message, Unreadable, read_message
from engine_build.datasets.dataset import ATTENTION_MASK, Array, Encoder, Sample
from engine_build.datasets.text import TextEncoder
from engine_build.onnx_graph.network_store import Network
from onboarding.manifest import Prompts
from onboarding.values import Task

FILE_TYPES = ("image/jpeg", "image/png")
"""Content types of a body that is one image file."""
SMALLEST = 1e-7
"""Scores are clipped there: a float32 softmax has no smaller ones of use."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The samples of one captured request; texts have their prompt before them."""

    samples: tuple[Sample, ...]
    answer: Body | None


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The answers to a request, one row a sample."""

    values: Array
    """float64 [samples, values]."""
    of_scores: bool = False
    """Whether they were made of scores, so that a constant a row is lost."""


def read_request(captured: Captured, network: Network, task: Task) -> Request:
    """Return a captured request's samples. Raises Unreadable."""
    if captured.request is None:
        raise Unreadable("the request was not captured")
    if task == "image-classification":
        samples: tuple[Sample, ...] = tuple(_files(captured.request))
        return _request(samples, captured)
    message = read_message(captured.request, "inputs")
    if task == "tensors":
        samples = _arrays(message, network)
    elif task == "text-ranking":
        samples = request_pairs(message)
    else:
        prompt = request_prompt(message, network.prompts)
        samples = tuple(prompt + text for text in request_texts(message))
    return _request(samples, captured)


def read_rows(request: Request, network: Network, task: Task, encoder: Encoder) -> Rows:
    """Return the captured answers to a request. Raises Unreadable."""
    if request.answer is None:
        raise Unreadable("the answer was not captured")
    message, count = read_message(request.answer, "outputs"), len(request.samples)
    if task == "token-classification":
        return _token_rows(message, network, request.samples, encoder)
    if task == "tensors":
        missing = [name for name in network.output_names if name not in message.tensors]
        if missing:
            raise Unreadable("the client asked for some of the outputs alone")
        parts = [_rows(message.tensors[name], count) for name in network.output_names]
        return Rows(values=np.concatenate(parts, axis=1))
    if "scores" not in message.tensors and len(message.tensors) == 1:
        (values,) = message.tensors.values()
        return Rows(values=_rows(values, count))
    if "logits" in message.tensors:
        return Rows(values=_rows(message.tensors["logits"], count))
    if message.tensors:
        labels = message.tensors.get("labels")
        return _score_rows(network, labels, message.tensors["scores"], count)
    return _plain_rows(message.document.get("outputs"), network, task, count)


def _request(samples: tuple[Sample, ...], captured: Captured) -> Request:
    if not samples:
        raise Unreadable("the request has no rows")
    return Request(samples=samples, answer=captured.answer)


def _files(body: Body) -> Iterator[bytes]:
    """Yield the image files of a request, in each form that the servers take."""
    if body.content_type.partition(";")[0].strip().lower() in FILE_TYPES:
        values: Any = [body.data]
    else:
        message = read_message(body, "inputs", files=True)
        if message.tensors:
            values = [value for tensor in message.tensors.values() for value in tensor.reshape(-1)]
        else:
            inputs: Any = message.document.get("inputs")
            values = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(values, list) or not all(isinstance(item, str | bytes) for item in values):
        raise Unreadable("it has no images")
    for value in values:
        file = file_bytes(value.encode() if isinstance(value, str) else value)
        if not pixel_count(file):
            raise Unreadable("it has an image that is no JPEG or PNG file")
        yield file


def request_texts(message: Message) -> list[str]:
    """Return the texts of a request. Raises Unreadable."""
    texts: Any
    if message.tensors:
        if len(message.tensors) != 1:
            raise Unreadable("it has several tensors, and the task one")
        (values,) = message.tensors.values()
        texts = values.reshape(-1).tolist()
    else:
        inputs: Any = message.document.get("inputs")
        texts = [inputs] if isinstance(inputs, str) else inputs
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise Unreadable("it has no texts")
    return texts


def request_prompt(message: Message, prompts: Prompts | None) -> str:
    """Return what stands before each text of a request. Raises Unreadable."""
    if prompts is None:
        return ""
    name = message.parameter("prompt_name") or message.document.get("prompt_name")
    if name is not None and name not in prompts.texts:
        raise Unreadable("it names a prompt that the network does not have")
    return prompts.prefix(name)


def request_pairs(message: Message) -> tuple[tuple[str, str], ...]:
    """Return the query with each text of a request. Raises Unreadable."""
    if message.tensors:
        queries, texts = (
            message.tensors.get(name, np.empty(0)).reshape(-1).tolist()
            for name in ("query", "text")
        )
    else:
        given: Any = message.document.get("texts")
        texts = given if isinstance(given, list) else []
        queries = [message.document.get("query")] * len(texts)
    if len(queries) != len(texts) or not all(isinstance(item, str) for item in (*queries, *texts)):
        raise Unreadable("it has no query and texts")
    return tuple(zip(queries, texts, strict=True))


def _arrays(message: Message, network: Network) -> tuple[Sample, ...]:
    columns = [message.tensors.get(name) for name in network.input_names]
    if any(column is None or not column.ndim for column in columns):
        raise Unreadable("it lacks an input of the network")
    counts = {len(column) for column in columns if column is not None}
    if len(counts) != 1:
        raise Unreadable("its inputs have different numbers of rows")
    return tuple(
        dict(zip(network.input_names, row, strict=True)) for row in zip(*columns, strict=True)
    )


def _rows(values: Array, count: int) -> Array:
    if values.ndim < 1 or len(values) != count:
        raise Unreadable("the answer has another number of rows than the request")
    try:
        rows: Array = values.reshape(count, -1).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise Unreadable("the answer has no numbers") from error
    return rows


def _score_rows(network: Network, labels: Array | None, scores: Array, count: int) -> Rows:
    """Return scores in the order of the network's labels, as logits."""
    rows = _rows(scores, count)
    if labels is not None:
        if network.labels is None or labels.shape != scores.shape:
            raise Unreadable("its labels are not those of its scores")
        if rows.shape[1] != len(network.labels):
            raise Unreadable("the client asked for some of the labels alone")
        places = {name: index for index, name in enumerate(network.labels)}
        try:
            order = np.array([[places[str(name)] for name in row] for row in labels])
        except KeyError as error:
            raise Unreadable("it has a label that the network does not have") from error
        ordered = np.empty_like(rows)
        np.put_along_axis(ordered, order, rows, axis=1)
        rows = ordered
    return Rows(values=_logits(rows, network.facts.get("activation")), of_scores=True)


def _logits(scores: Array, activation: object) -> Array:
    clipped: Array = np.clip(scores, SMALLEST, 1 - SMALLEST)
    logits: Array = np.log(clipped)
    if activation == "softmax":
        return logits
    if activation == "sigmoid":
        logits -= np.log1p(-clipped)
        return logits
    return scores


def _plain_rows(outputs: object, network: Network, task: Task, count: int) -> Rows:
    if not isinstance(outputs, list) or len(outputs) != count:
        raise Unreadable("the answer has another number of rows than the request")
    try:
        if task == "text-ranking":
            scores = {int(item["index"]): float(item["score"]) for item in outputs}
            column = np.array([[scores[index]] for index in range(count)])
            return _score_rows(network, None, column, count)
        if all(isinstance(row, list) and row and isinstance(row[0], Mapping) for row in outputs):
            labels = np.array([[item["label"] for item in row] for row in outputs], dtype=object)
            values = np.array([[item["score"] for item in row] for row in outputs], dtype=float)
            return _score_rows(network, labels, values, count)
        return Rows(values=_rows(np.array(outputs, dtype=float), count))
    except Unreadable:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable("the answer is no answer of the task") from error


def _token_rows(
    message: Message, network: Network, samples: Sequence[Sample], encoder: Encoder
) -> Rows:
    """Return one-hot rows of the labels of a KServe answer, at the places of the tokens."""
    labels = message.tensors.get("labels")
    if labels is None or labels.ndim != 2 or len(labels) != len(samples):
        raise Unreadable("entities alone do not tell the label of every token")
    assert isinstance(encoder, TextEncoder) and network.labels is not None
    places = {name: index for index, name in enumerate(network.labels)}
    feed = encoder.feed(samples)
    ones = np.ones((*feed[ATTENTION_MASK].shape, len(places)), np.float32)
    is_token = encoder.aligned(ones, feed).reshape(len(samples), -1, len(places))[:, :, 0] == 1
    rows = np.zeros((*is_token.shape, len(places)))
    for row, tokens, names in zip(rows, is_token, labels, strict=True):
        known = [name for name in names if name != ""]
        if len(known) != tokens.sum() or not set(known) <= places.keys():
            raise Unreadable("it has another number of tokens than the tokenizer gives")
        row[np.flatnonzero(tokens), [places[name] for name in known]] = 1
    return Rows(values=rows.reshape(len(samples), -1))
