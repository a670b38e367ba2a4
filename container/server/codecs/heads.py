"""Texts or pairs in, labels and scores out, as bytes.

KServe v2 JSON, its binary extension, and plain JSON: `{"inputs": ["text"]}`, or `{"query": "text",
"texts": ["text"]}` for a ranker. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from container.server.codecs import tensors
from container.server.codecs.envelope import (
    claimed_pieces,
    excerpt,
    json_bytes,
    json_type,
    kserve_request,
    parameter,
    plain_texts,
    read_envelope,
    timeout_seconds,
)
from container.server.codecs.texts import kserve_texts
from container.server.types import (
    JSON_TYPE,
    Array,
    InferenceRequest,
    RequestFault,
    Signature,
    TokenText,
)
from container.triton import heads

CLASSIFIERS = ("text-classification", "image-classification")
NO_ENTITY = "O"
"""The label of tokens that no entity holds, as transformers' pipeline leaves it out."""


def decode_request(body: bytes, content_type: str, signature: Signature) -> InferenceRequest:
    """Return the request in a body. Raises RequestFault with the sentence for the client."""
    names = [record.name for record in signature.inputs]
    is_paired = len(names) > 1
    document, tail = read_envelope(body, content_type, has_inputs=not is_paired)
    plain = _plain_rows(document, is_paired=is_paired)
    if plain is not None:
        if tail:
            raise RequestFault(f"The body carries {len(tail)} bytes after its JSON.")
        return InferenceRequest(
            rows=_rows(signature, (plain,) if not is_paired else plain),
            dialect="plain",
            top_k=top_labels(document, signature),
            timeout_seconds=timeout_seconds(document),
        )
    rows = _rows(signature, _columns(document.get("inputs"), tail, names))
    return kserve_request(document, rows, [record.name for record in signature.outputs])


def encode_response(
    arrays: Sequence[Array], request: InferenceRequest, signature: Signature
) -> tuple[bytes, str]:
    """Return body and content type; `arrays` are the engine's logits, or classes and scores."""
    outputs = _outputs(arrays, request, signature)
    if request.dialect == "plain":
        return json_bytes({"outputs": _plain_answer(outputs, request, signature)}), JSON_TYPE
    named = [outputs[record.name] for record in signature.outputs]
    return tensors.encode_response(named, request, signature)


def _outputs(
    arrays: Sequence[Array], request: InferenceRequest, signature: Signature
) -> dict[str, Array]:
    if signature.task == "token-classification":
        spans = [text.spans for text in request.rows]
        longest = max(map(len, spans))
        classes, scores = (array[:, :longest] for array in arrays)
        padded = heads.padded_spans(spans, longest)
        return heads.token_answers(classes, scores, padded, labels=signature.labels or ())
    return heads.text_answers(arrays[0], labels=signature.labels, activation=signature.activation)


def _plain_rows(document: Mapping[str, Any], *, is_paired: bool) -> Any:
    """Return the texts of plain JSON, or the two columns of a ranker's; None of a KServe body."""
    if not is_paired:
        return plain_texts(document["inputs"])
    if "inputs" in document:
        return None
    query, texts = document.get("query"), document.get("texts")
    if not isinstance(query, str):
        raise RequestFault(
            'The request needs "query" with a text and "texts" with a list of them, or "inputs" '
            f'with tensors; its "query" is {json_type(query)}.'
        )
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise RequestFault(f'"texts" must be a list of texts; it is {excerpt(texts)}.')
    return [query] * len(texts), texts


def top_labels(document: Mapping[str, Any], signature: Signature) -> int | None:
    """Return how many labels a plain answer has; None: all. Raises RequestFault."""
    value = parameter(document, "top_k")
    if value is None:
        return None
    if signature.task not in CLASSIFIERS or type(value) is not int or value < 1:
        raise RequestFault(
            f'"top_k" is {excerpt(value)}; it must be a whole number from 1, and only a classifier '
            "of texts or images takes it."
        )
    return value


def _columns(inputs: object, tail: bytes, names: Sequence[str]) -> list[Sequence[str]]:
    """Return the texts of each tensor, in the order of the names."""
    if len(names) == 1:
        return [kserve_texts(inputs, tail, names[0])]
    listed = " and ".join(map(repr, names))
    if not isinstance(inputs, list) or not all(isinstance(tensor, dict) for tensor in inputs):
        raise RequestFault(f'"inputs" must be a list of two tensors, {listed}.')
    if sorted(str(tensor.get("name")) for tensor in inputs) != sorted(names):
        given = ", ".join(excerpt(tensor.get("name")) for tensor in inputs)
        raise RequestFault(f"The request has the inputs {given}; the model takes {listed}.")
    pieces = claimed_pieces(inputs, tail)
    columns = {
        tensor["name"]: kserve_texts([tensor], pieces.get(tensor["name"], b""), tensor["name"])
        for tensor in inputs
    }
    counts = {name: len(columns[name]) for name in names}
    if len(set(counts.values())) > 1:
        each = ", ".join(f"{name!r} {count}" for name, count in counts.items())
        raise RequestFault(f"The inputs have different numbers of rows: {each}.")
    return [columns[name] for name in names]


def _rows(signature: Signature, columns: Sequence[Sequence[str]]) -> Sequence[Any]:
    if signature.task == "token-classification":
        return list(map(TokenText, columns[0]))
    return list(zip(*columns, strict=True)) if len(columns) > 1 else columns[0]


def _plain_answer(
    outputs: Mapping[str, Array], request: InferenceRequest, signature: Signature
) -> list[Any]:
    scores = outputs["scores"].tolist()
    if signature.task == "text-ranking":
        pairs = sorted(enumerate(scores), key=lambda pair: -pair[1][0])
        return [{"index": index, "score": row[0]} for index, row in pairs]
    labels = outputs["labels"].tolist()
    if signature.task == "token-classification":
        offsets = outputs["offsets"].tolist()
        return [
            list(_entities(text.text, *row))
            for text, *row in zip(request.rows, labels, scores, offsets, strict=True)
        ]
    return [
        [
            {"label": label.decode(), "score": score}
            for label, score in list(zip(*row, strict=True))[: request.top_k]
        ]
        for row in zip(labels, scores, strict=True)
    ]


def _entities(
    text: str, labels: Sequence[bytes], scores: Sequence[float], offsets: Sequence[Sequence[int]]
) -> Iterator[dict[str, Any]]:
    """Yield the tokens of entities, as transformers' pipeline does without an aggregation."""
    for label, score, (begin, end) in zip(labels, scores, offsets, strict=True):
        name = label.decode()
        if begin != heads.NO_OFFSET and name != NO_ENTITY:
            yield {
                "entity": name,
                "score": score,
                "word": text[begin:end],
                "start": begin,
                "end": end,
            }
