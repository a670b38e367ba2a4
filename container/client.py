"""A client of our SageMaker endpoints for boto3 callers: texts or arrays in, arrays out.

    client = EndpointClient(runtime=boto3.client("sagemaker-runtime"), endpoint="prod-embedder")
    vectors = client.embed(["a cat", "a kitten"])

boto3 retries by itself (`legacy` mode: up to four times, 5xx and throttling): give its client
`Config(retries={"total_max_attempts": 1})`, or the two multiply.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from container.wire import AnswerFault as AnswerFault
from container.wire import (
    Array,
    array_request,
    arrays_of,
    error_sentence,
    image_request,
    pair_request,
    text_request,
)
from container.wire import EndpointFault as EndpointFault
from container.wire import rows_of as rows_of

RETRIED_CODES = frozenset(
    {"ThrottlingException", "Throttling", "ServiceUnavailable", "ModelNotReadyException"}
)
RETRIED_STATUS = 503
TRITON_QUEUE_FULL = "Exceeds maximum queue size"
OUT_OF_TIME = (
    "Request timeout expired",
    "request's time",
    "as long as it may",
    "did not answer within",
)
"""Parts of Triton's, and the Python server's, sentences for a passed deadline."""
FIRST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class EndpointClient:
    """One endpoint and, where there is one, its inference component or a target model.

    `runtime` is boto3's `sagemaker-runtime` client. An endpoint that scales to zero has a
    `component` of its own name; SageMaker refuses a request that finds no copy. A request that may
    succeed later is sent again after growing, jittered pauses (`is_retried`).

    Every method raises EndpointFault with one sentence.
    """

    runtime: Any
    endpoint: str
    target_model: str | None = None
    component: str | None = None
    binary: bool = True
    attempts: int = 4
    pause: Callable[[float], None] = field(default=time.sleep)

    def embed(self, texts: Sequence[str], prompt_name: str | None = None) -> Array:
        """Return one row per text, in order: vectors of an embedder, logits of a classifier.

        `prompt_name` is one of the model's prompts; None: its default.
        """
        request = text_request(texts, binary=self.binary, prompt_name=prompt_name)
        rows: Array = self._read(rows_of, request)
        if rows.ndim != 2 or len(rows) != len(texts):
            raise AnswerFault(
                f"Endpoint {self.endpoint}: {len(texts)} texts went in, an array of {rows.shape} "
                "came out."
            )
        return rows

    def classify(self, texts: Sequence[str]) -> list[list[tuple[str, float]]]:
        """Return each text's labels with their scores, the highest first."""
        return self._labels(text_request(texts, binary=self.binary), len(texts))

    def classify_images(self, files: Sequence[bytes]) -> list[list[tuple[str, float]]]:
        """Return each image's labels with their scores, the highest first."""
        return self._labels(image_request(files, binary=self.binary), len(files))

    def _labels(self, request: tuple[bytes, str], count: int) -> list[list[tuple[str, float]]]:
        arrays = self._answer(request, count, "labels")
        rows = zip(arrays["labels"].tolist(), arrays["scores"].tolist(), strict=True)
        return [list(zip(*row, strict=True)) for row in rows]

    def rank(self, query: str, texts: Sequence[str]) -> Array:
        """Return the score of each text for a query, in the order of the texts: float32 [texts]."""
        request = pair_request(query, texts, binary=self.binary)
        scores: Array = self._answer(request, len(texts), "scores")["scores"][:, 0]
        return scores

    def entities(self, texts: Sequence[str], *, grouped: bool = True) -> list[list[Entity]]:
        """Return each text's entities: groups of tokens, or one for each token of an entity.

        As transformers' pipeline does with aggregation_strategy "simple", or "none".
        """
        request = text_request(texts, binary=self.binary)
        return entities_of(self._answer(request, len(texts), "offsets"), texts, grouped=grouped)

    def _answer(self, request: tuple[bytes, str], rows: int, output: str) -> dict[str, Array]:
        arrays: dict[str, Array] = self._read(arrays_of, request)
        if output not in arrays or len(arrays[output]) != rows:
            raise AnswerFault(
                f"Endpoint {self.endpoint}: {rows} rows went in, and the answer should have "
                f"{output!r} of each; it has {', '.join(map(repr, arrays))}: the model is of "
                "another task, or its engine is older than its task's labels and scores."
            )
        return arrays

    def ask(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Return an array per output for an array per input, rows on axis 0.

        Raises InputFault for a type that KServe v2 does not have.
        """
        outputs: dict[str, Array] = self._read(arrays_of, array_request(arrays, binary=self.binary))
        return outputs

    def _read(self, reader: Callable[[bytes, str], Any], request: tuple[bytes, str]) -> Any:
        answer = self._invoke(*request)
        try:
            body = answer["Body"].read()
        except Exception as fault:  # the request is answered, so it is not sent again
            raise EndpointFault(
                f"Endpoint {self.endpoint} broke off its answer: {format_fault(fault)}"
            ) from fault
        try:
            return reader(body, str(answer.get("ContentType", "")))
        except AnswerFault as fault:
            raise AnswerFault(f"Endpoint {self.endpoint}: {fault}") from fault

    def _invoke(self, body: bytes, content_type: str) -> Mapping[str, Any]:
        arguments = {"EndpointName": self.endpoint, "ContentType": content_type, "Body": body}
        if self.target_model is not None:
            arguments["TargetModel"] = self.target_model
        if self.component is not None:
            arguments["InferenceComponentName"] = self.component
        attempt = 1
        while True:
            try:
                answer: Mapping[str, Any] = self.runtime.invoke_endpoint(**arguments)
                return answer
            except Exception as fault:
                if not is_retried(fault) or attempt >= self.attempts:
                    raise EndpointFault(
                        f"Endpoint {self.endpoint} gave no answer at attempt {attempt}: "
                        f"{format_fault(fault)}"
                    ) from fault
            self.pause(random.uniform(0.5, 1.0) * FIRST_PAUSE_SECONDS * 2**attempt)
            attempt += 1


def is_retried(fault: Exception) -> bool:
    """Return True when botocore's fault is temporary: throttling, 503, or a model that still loads.

    A request that waited as long as it may is not sent again, though it is a 503: the server is
    late for every client, and a retry makes it later. A 4xx of the container is not temporary,
    except Triton's full queue: it answers 400 and has done nothing yet.
    """
    response = getattr(fault, "response", None)
    if not isinstance(response, Mapping):
        return False
    if response.get("Error", {}).get("Code") in RETRIED_CODES:
        return True
    status, words = response.get("OriginalStatusCode"), str(response.get("OriginalMessage"))
    if status == RETRIED_STATUS:
        return not any(sentence in words for sentence in OUT_OF_TIME)
    return status == 400 and TRITON_QUEUE_FULL in words


def format_fault(fault: Exception) -> str:
    """Return a fault as one sentence: the container's own where there is one, else AWS's."""
    response = getattr(fault, "response", None)
    if not isinstance(response, Mapping):
        return str(fault) if str(fault) else repr(fault)
    if response.get("OriginalMessage"):
        status = response.get("OriginalStatusCode")
        return f"the server answered {status}: {error_sentence(response['OriginalMessage'])}"
    error = response.get("Error", {})
    if error.get("Message"):
        return f"AWS answered {error.get('Code')}: {error['Message']}"
    return str(fault)


NO_ENTITY = "O"
"""The label of tokens outside of entities."""


class Entity(NamedTuple):
    """A part of a text, from `start` to `end` in characters."""

    label: str
    score: float
    start: int
    end: int
    text: str


def entities_of(
    arrays: Mapping[str, Array], texts: Sequence[str], *, grouped: bool
) -> list[list[Entity]]:
    """Return each text's entities: of the outputs `labels`, `scores` and `offsets`."""
    columns = (arrays[name].tolist() for name in ("labels", "scores", "offsets"))
    rows = zip(texts, *columns, strict=True)
    return [
        [entity for entity in _row(*row, grouped=grouped) if entity.label != NO_ENTITY]
        for row in rows
    ]


def _row(
    text: str,
    labels: Sequence[str],
    scores: Sequence[float],
    offsets: Sequence[Sequence[int]],
    *,
    grouped: bool,
) -> list[Entity]:
    tokens = [
        Entity(label, score, start, end, text[start:end])
        for label, score, (start, end) in zip(labels, scores, offsets, strict=True)
        if start >= 0
    ]
    return _groups(tokens, text) if grouped else tokens


def _groups(tokens: Sequence[Entity], text: str) -> list[Entity]:
    """Join neighbours of one label; B- begins an entity, I- and labels without either go on."""
    groups: list[list[Entity]] = []
    for token in tokens:
        if groups and _goes_on(token.label, groups[-1][-1].label):
            groups[-1].append(token)
        else:
            groups.append([token])
    return [
        Entity(
            group[0].label.split("-", 1)[-1],
            sum(token.score for token in group) / len(group),
            group[0].start,
            group[-1].end,
            text[group[0].start : group[-1].end],
        )
        for group in groups
    ]


def _goes_on(label: str, before: str) -> bool:
    return not label.startswith("B-") and _tag(label) == _tag(before)


def _tag(label: str) -> str:
    return label[2:] if label.startswith(("B-", "I-")) else label
