"""One request of an asynchronous endpoint, its output in S3, and its notification."""

from __future__ import annotations

import base64
import json
import logging
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from local_cloud.containers.archive import s3_location
from local_cloud.ministack.account import publish, region, write_object
from local_cloud.protocol.errors import present_fields
from local_cloud.sagemaker.runtime.invocation import INFERENCE_ID, refusal

PREFIX = "x-amzn-sagemaker-"
INLINE_BYTES = 128_000
INCLUDED_BYTES = 128 * 1024
TTL_SECONDS, MODEL_SECONDS = 21_600, 900
TOPICS = {"Completed": ("SuccessTopic", "SUCCESS_NOTIFICATION_TOPIC")}
ERROR_TOPIC = ("ErrorTopic", "ERROR_NOTIFICATION_TOPIC")
logger = logging.getLogger("roundhouse.asynchronous")


@dataclass(frozen=True, kw_only=True)
class Queued:
    """A request that waits; times are seconds since the epoch."""

    inference_id: str
    input_location: str | None
    output_location: str
    failure_location: str | None
    headers: Mapping[str, str]
    body: bytes
    received: float
    expires: float
    model_seconds: float
    output_config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The result of a request: Completed with a body, or Failed or Expired with a reason."""

    status: str
    reason: str | None = None
    content_type: str = ""
    body: bytes = b""


def read_request(
    config: Mapping[str, Any], headers: Mapping[str, str], body: bytes, now: float
) -> Queued:
    """Read a request, or refuse it as SageMaker Runtime does."""
    location = headers.get(f"{PREFIX}inputlocation")
    if (location is None) == (not body):
        raise refusal("Body and InputLocation are mutually exclusive. Provide exactly one of them.")
    if len(body) > INLINE_BYTES:
        raise refusal(
            f"Request body of {len(body)} bytes exceeds the {INLINE_BYTES} bytes that "
            "InvokeEndpointAsync takes."
        )
    passed_on = {name: value for name, value in headers.items() if name.startswith(PREFIX)}
    for name in ("content-type", "accept"):
        if PREFIX + name in passed_on:
            passed_on[name] = passed_on.pop(PREFIX + name)
    output, name = config["OutputConfig"], str(uuid.uuid4())
    failure_path = output.get("S3FailurePath")
    return Queued(
        inference_id=headers.get(INFERENCE_ID) or str(uuid.uuid4()),
        input_location=location,
        output_location=_output_url(output.get("S3OutputPath") or "", headers, f"{name}.out"),
        failure_location=failure_path and _output_url(failure_path, headers, f"{name}-error.out"),
        headers=passed_on,
        body=body,
        received=now,
        expires=now + float(headers.get(f"{PREFIX}requestttlseconds", TTL_SECONDS)),
        model_seconds=float(headers.get(f"{PREFIX}invocationtimeoutseconds", MODEL_SECONDS)),
        output_config=output,
    )


def deliver(endpoint: str, request: Queued, answered: Answered) -> None:
    """Write the answer or the failure to S3, and notify the topic for it."""
    completed = answered.status == "Completed"
    url = request.output_location if completed else request.failure_location
    content = answered.body if completed else str(answered.reason).encode()
    if url is not None:
        content_type = answered.content_type if completed else "text/plain"
        content_type = content_type or "application/octet-stream"
        kms_key = request.output_config.get("KmsKeyId")
        if not write_object(*s3_location(url), content, content_type, kms_key):
            logger.warning("the answer to %s cannot be written to %s", request.inference_id, url)
    topics = request.output_config.get("NotificationConfig") or {}
    name, included = TOPICS.get(answered.status, ERROR_TOPIC)
    if topics.get(name) is None:
        return
    includes = included in (topics.get("IncludeInferenceResponseIn") or ())
    shown = content if includes and len(content) <= INCLUDED_BYTES else None
    message = json.dumps(_notification(endpoint, request, answered, shown))
    if not publish(topics[name], message):
        logger.warning("the topic %s does not exist", topics[name])


def _notification(
    endpoint: str, request: Queued, answered: Answered, content: bytes | None
) -> Mapping[str, Any]:
    """Source: recorded notifications of asynchronous endpoints."""
    if answered.status == "Completed":
        response = {
            "contentType": answered.content_type,
            "outputLocation": request.output_location,
        }
    else:
        response = present_fields(failureLocation=request.failure_location)
    included = None
    if content is not None:
        included = {"content": base64.b64encode(content).decode(), "encoding": "BASE64"}
    return {
        "awsRegion": region(),
        "eventTime": _timestamp(time.time()),
        "receivedTime": _timestamp(request.received),
        "invocationStatus": answered.status,
        **present_fields(failureReason=answered.reason),
        "requestParameters": {
            **present_fields(accept=request.headers.get("accept")),
            "endpointName": endpoint,
            **present_fields(inputLocation=request.input_location),
        },
        **present_fields(responseParameters=response or None, responseBody=included),
        "inferenceId": request.inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }


def _output_url(path: str, headers: Mapping[str, str], name: str) -> str:
    extension = headers.get(f"{PREFIX}s3outputpathextension", "").strip("/")
    parts = (path.rstrip("/"), extension, headers.get(f"{PREFIX}filename", name))
    return "/".join(part for part in parts if part)


def _timestamp(when: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return f"{seconds}.{int(when * 1000) % 1000:03d}Z"
