"""Asks a SageMaker endpoint of ours, for callers of boto3: texts or arrays in, numpy arrays out.

    client = EndpointClient(runtime=boto3.client("sagemaker-runtime"),
    endpoint="prod-sentence-embedder")
    vectors = client.embed(["a cat", "a kitten"])

boto3 asks again by itself (`legacy` mode: up to four times, 5xx and throttling): give its client
`Config(retries={"total_max_attempts": 1})`, or the two multiply.
"""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from container.wire import AnswerFault as AnswerFault
from container.wire import Array, array_request, arrays_of, error_sentence, text_request
from container.wire import EndpointFault as EndpointFault
from container.wire import rows_of as rows_of

RETRIED_CODES = frozenset(
    {"ThrottlingException", "Throttling", "ServiceUnavailable", "ModelNotReadyException"}
)
RETRIED_STATUS = 503
TRITON_QUEUE_FULL = "Exceeds maximum queue size"
OUT_OF_TIME = ("Request timeout expired", "request's time", "as long as it may")
"""In what Triton, and the Python server, say to a request that has waited its whole time."""
FIRST_PAUSE_SECONDS = 0.2
BEFORE_SIGN = "before-sign.sagemaker-runtime.InvokeEndpoint"
GZIP_MAGIC = b"\x1f\x8b"


class SageMakerRuntime(Protocol):
    """The one call of boto3's `sagemaker-runtime` client that is made."""

    def invoke_endpoint(self, **arguments: Any) -> Mapping[str, Any]:
        """boto3's InvokeEndpoint."""
        ...


@dataclass(frozen=True, kw_only=True)
class EndpointClient:
    """One endpoint, and on a multi-model endpoint one target model; `runtime` is boto3's
    `sagemaker-runtime` client.

    What may succeed later is asked again with growing, jittered pauses (see `is_retried`); nothing
    else is. `output_name` None is
    the model's only output. Bodies of `gzip_from_bytes` and more are compressed: our server reads
    them, Triton does
    not; InvokeEndpoint has no field for the encoding and AWS does not say whether it passes the
    header on, so try it before you
    rely on it. Every method raises EndpointFault with one sentence: what the server said.
    """

    runtime: SageMakerRuntime
    endpoint: str
    target_model: str | None = None
    input_name: str = "text"
    output_name: str | None = None
    binary: bool = True
    attempts: int = 4
    gzip_from_bytes: int | None = None
    pause: Callable[[float], None] = field(default=time.sleep)

    def embed(self, texts: Sequence[str]) -> Array:
        """One row per text, in order: vectors of an embedder, logits of a classifier."""
        request = text_request(texts, binary=self.binary, input_name=self.input_name)
        rows: Array = self._read(rows_of, request, self.output_name)
        if rows.ndim != 2 or len(rows) != len(texts):
            raise AnswerFault(
                f"Endpoint {self.endpoint}: {len(texts)} texts went in, an array of {rows.shape} came out."
            )
        return rows

    def scores(self, texts: Sequence[str]) -> Array:
        """One row of class probabilities per text, in the order of the classifier's labels, which
        the caller has.
        """
        logits = self.embed(texts)
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities: Array = powers / powers.sum(axis=1, keepdims=True)
        return probabilities

    def ask(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """An array per output for an array per input, rows on axis 0; InputFault for a type that
        KServe v2 does not have.
        """
        found: dict[str, Array] = self._read(arrays_of, array_request(arrays, binary=self.binary))
        return found

    def _read(
        self, reader: Callable[..., Any], request: tuple[bytes, str], *more: str | None
    ) -> Any:
        answer = self._invoked(self._arguments(*request))
        try:
            body = answer["Body"].read()
        except Exception as fault:  # whatever the connection breaks with: the work is done, and nothing asks for it twice
            raise EndpointFault(
                f"Endpoint {self.endpoint} broke off its answer: {format_fault(fault)}"
            ) from fault
        try:
            return reader(body, str(answer.get("ContentType", "")), *more)
        except AnswerFault as fault:
            raise AnswerFault(f"Endpoint {self.endpoint}: {fault}") from fault

    def _arguments(self, body: bytes, content_type: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {
            "EndpointName": self.endpoint,
            "ContentType": content_type,
            "Body": body,
        }
        if self.target_model is not None:
            arguments["TargetModel"] = self.target_model
        return arguments

    def _invoked(self, arguments: dict[str, Any]) -> Mapping[str, Any]:
        for attempt in range(1, self.attempts + 1):
            try:
                return self._invoke(arguments)
            except Exception as fault:
                if not is_retried(fault) or attempt == self.attempts:
                    raise EndpointFault(
                        f"Endpoint {self.endpoint} gave no answer at attempt {attempt}: {format_fault(fault)}"
                    ) from fault
            self.pause(random.uniform(0.5, 1.0) * FIRST_PAUSE_SECONDS * 2**attempt)
        raise EndpointFault(
            f"Endpoint {self.endpoint} was not asked: attempts is {self.attempts}, it must be 1 or more."
        )

    def _invoke(self, arguments: dict[str, Any]) -> Mapping[str, Any]:
        if self.gzip_from_bytes is None or len(arguments["Body"]) < self.gzip_from_bytes:
            return self.runtime.invoke_endpoint(**arguments)
        # Kept for the client's other threads; a body that is not compressed is left alone.
        self.runtime.meta.events.register(BEFORE_SIGN, name_encoding, unique_id="roundhouse-gzip")  # type: ignore[attr-defined]
        return self.runtime.invoke_endpoint(
            **arguments | {"Body": gzip.compress(arguments["Body"], 1)}
        )


def name_encoding(request: Any, **_: Any) -> None:
    """Says in a request's headers, before they are signed, that its body is compressed."""
    if bytes(request.data[:2]) == GZIP_MAGIC:
        request.headers["Content-Encoding"] = "gzip"


def is_retried(fault: Exception) -> bool:
    """Whether the same request may succeed later, told by botocore's ClientError: throttling, 503,
    a model that still loads.

    A request that has waited as long as it may is not, though that is a 503 too: the server is late
    for everybody, and repeating
    makes it later. A container's 4xx never is, but for one: Triton says that its queue is full with
    status 400, and has done
    nothing yet.
    """
    response = getattr(fault, "response", None)
    if not isinstance(response, Mapping):
        return False
    if response.get("Error", {}).get("Code") in RETRIED_CODES:
        return True
    status, words = response.get("OriginalStatusCode"), str(response.get("OriginalMessage"))
    if status == RETRIED_STATUS:
        return not any(each in words for each in OUT_OF_TIME)
    return status == 400 and TRITON_QUEUE_FULL in words


def format_fault(fault: Exception) -> str:
    """A fault in one sentence: the container's own words where there are some, else AWS's."""
    response = getattr(fault, "response", None)
    if not isinstance(response, Mapping):
        return str(fault) if str(fault) else repr(fault)
    if response.get("OriginalMessage"):
        return f"the server answered {response.get('OriginalStatusCode')}: {error_sentence(response['OriginalMessage'])}"
    error = response.get("Error", {})
    return (
        f"AWS answered {error.get('Code')}: {error.get('Message')}"
        if error.get("Message")
        else str(fault)
    )
