"""Asks a SageMaker endpoint of ours: texts in, numpy arrays out."""

from __future__ import annotations

import json
import random
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

BINARY_TYPE = "application/vnd.sagemaker-triton.binary+json"
RETRIED_CODES = frozenset({"ThrottlingException", "Throttling", "ServiceUnavailable", "ModelNotReadyException"})
RETRIED_STATUSES = frozenset({429, 503})


class SageMakerRuntime(Protocol):
    """The one call of boto3's `sagemaker-runtime` client that is made."""

    def invoke_endpoint(self, **arguments: Any) -> Mapping[str, Any]:
        """boto3's InvokeEndpoint."""
        ...


class EndpointFault(Exception):
    """The endpoint gave no answer; the message says what it said."""


@dataclass(frozen=True, kw_only=True)
class EndpointClient:
    """One endpoint, and on a multi-model endpoint one target model; `runtime` is boto3's `sagemaker-runtime` client.

    Throttling, 503 and a model that is still loading are retried with growing, jittered pauses; nothing else is.
    """

    runtime: SageMakerRuntime
    endpoint: str
    target_model: str | None = None
    input_name: str = "text"
    output_name: str = "embedding"
    binary: bool = True
    attempts: int = 4
    pause: Callable[[float], None] = field(default=time.sleep)

    def embed(self, texts: Sequence[str]) -> np.ndarray[Any, Any]:
        """One float32 row per text, in order. Raises EndpointFault."""
        body, content_type = self._request(texts)
        arguments = {"EndpointName": self.endpoint, "ContentType": content_type, "Body": body}
        if self.target_model is not None:
            arguments["TargetModel"] = self.target_model
        answer = self._invoked(arguments)
        return rows_of(answer["Body"].read(), str(answer.get("ContentType", "")), self.output_name)

    def _request(self, texts: Sequence[str]) -> tuple[bytes, str]:
        tensor: dict[str, Any] = {"name": self.input_name, "shape": [len(texts), 1], "datatype": "BYTES"}
        output = {"name": self.output_name, "parameters": {"binary_data": self.binary}}
        document = {"inputs": [tensor], "outputs": [output]}
        if not self.binary:
            tensor["data"] = list(texts)
            return json.dumps(document).encode(), "application/json"
        tail = b"".join(struct.pack("<I", len(data)) + data for data in (text.encode() for text in texts))
        tensor["parameters"] = {"binary_data_size": len(tail)}
        header = json.dumps(document).encode()
        return header + tail, f"{BINARY_TYPE};json-header-size={len(header)}"

    def _invoked(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        for attempt in range(1, self.attempts + 1):
            try:
                return self.runtime.invoke_endpoint(**arguments)
            except Exception as fault:
                if not is_retried(fault) or attempt == self.attempts:
                    raise EndpointFault(f"Endpoint {self.endpoint} gave no answer at attempt {attempt}: {fault}") from fault
            self.pause(random.uniform(0.5, 1.0) * 0.2 * 2**attempt)
        raise EndpointFault(f"Endpoint {self.endpoint} was not asked: attempts is {self.attempts}, it must be 1 or more.")


def is_retried(fault: Exception) -> bool:
    """Whether the same request may succeed later, told by botocore's ClientError."""
    response = getattr(fault, "response", None)
    if not isinstance(response, Mapping):
        return False
    if response.get("Error", {}).get("Code") in RETRIED_CODES:
        return True
    return response.get("OriginalStatusCode") in RETRIED_STATUSES


def rows_of(body: bytes, content_type: str, output_name: str) -> np.ndarray[Any, Any]:
    """The float32 rows in a KServe v2 answer, JSON or binary. Raises EndpointFault."""
    _, marker, size = content_type.partition("json-header-size=")
    try:
        header = body[: int(size)] if marker else body
        outputs = {output["name"]: output for output in json.loads(header)["outputs"]}
        output = outputs[output_name]
        rows = np.frombuffer(body[int(size) :], "<f4") if "data" not in output else np.array(output["data"], np.float32)
        shaped: np.ndarray[Any, Any] = rows.reshape(output["shape"])
    except (ValueError, KeyError, TypeError) as fault:
        raise EndpointFault(f"The answer cannot be read ({fault!r}); it begins with {body[:80]!r}.") from fault
    return shaped
