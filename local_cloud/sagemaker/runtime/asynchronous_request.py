"""One request of an asynchronous endpoint: where its answer goes, and who hears of it."""

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
    """What became of a request: Completed with a body, or Failed or Expired with a reason."""

    status: str
    reason: str | None = None
    content_type: str = ""
    body: bytes = b""


def read_request(
    config: Mapping[str, Any], headers: Mapping[str, str], body: bytes, now: float
) -> Queued:
    """Reads a request, or refuses it as SageMaker Runtime does."""
    location = headers.get(f"{PREFIX}inputlocation")
    if (location is None) == (not body):
        raise refusal("Body and InputLocation are mutually exclusive. Provide exactly one of them.")
    if len(body) > INLINE_BYTES:
        raise refusal(
            f"Request body of {len(body)} bytes exceeds the {INLINE_BYTES} bytes that "
            "InvokeEndpointAsync takes."
        )
    output, name = config["OutputConfig"], str(uuid.uuid4())
    passed = {
        field: headers[f"{PREFIX}{field}"]
        for field in ("content-type", "accept")
        if f"{PREFIX}{field}" in headers
    }
    kept = {
        field: value
        for field, value in headers.items()
        if field.startswith(PREFIX) and field.removeprefix(PREFIX) not in passed
    }
    return Queued(
        inference_id=headers.get(INFERENCE_ID) or str(uuid.uuid4()),
        input_location=location,
        output_location=_below(output.get("S3OutputPath") or "", headers, f"{name}.out"),
        failure_location=None
        if output.get("S3FailurePath") is None
        else _below(output["S3FailurePath"], headers, f"{name}-error.out"),
        headers={**kept, **passed},
        body=body,
        received=now,
        expires=now + float(headers.get(f"{PREFIX}requestttlseconds", TTL_SECONDS)),
        model_seconds=float(headers.get(f"{PREFIX}invocationtimeoutseconds", MODEL_SECONDS)),
        output_config=output,
    )


def deliver(endpoint: str, request: Queued, answered: Answered) -> None:
    """Writes the answer or the failure to S3, and tells the topic that wants to hear of it."""
    completed = answered.status == "Completed"
    place = request.output_location if completed else request.failure_location
    content = answered.body if completed else str(answered.reason).encode()
    if place is not None:
        bucket, key = s3_location(place)
        content_type = answered.content_type if completed else "text/plain"
        if not write_object(
            bucket,
            key,
            content,
            content_type or "application/octet-stream",
            request.output_config.get("KmsKeyId"),
        ):
            logger.warning("the answer to %s cannot be written to %s", request.inference_id, place)
    topics = request.output_config.get("NotificationConfig") or {}
    name, included = TOPICS.get(answered.status, ERROR_TOPIC)
    if topics.get(name) is not None:
        includes = (
            included in (topics.get("IncludeInferenceResponseIn") or ())
            and len(content) <= INCLUDED_BYTES
        )
        if not publish(
            topics[name],
            json.dumps(notification(endpoint, request, answered, content if includes else None)),
        ):
            logger.warning("the topic %s does not exist", topics[name])


def notification(
    endpoint: str, request: Queued, answered: Answered, included: bytes | None
) -> Mapping[str, Any]:
    """What a topic hears of a request. Source: recorded notifications of asynchronous endpoints."""
    accept = request.headers.get("accept")
    completed = answered.status == "Completed"
    location = (
        {"outputLocation": request.output_location}
        if completed
        else {"failureLocation": request.failure_location}
    )
    response = {
        **({"contentType": answered.content_type} if completed else {}),
        **{name: value for name, value in location.items() if value is not None},
    }
    return {
        "awsRegion": region(),
        "eventTime": _stamp(time.time()),
        "receivedTime": _stamp(request.received),
        "invocationStatus": answered.status,
        **({} if answered.reason is None else {"failureReason": answered.reason}),
        "requestParameters": {
            **({} if accept is None else {"accept": accept}),
            "endpointName": endpoint,
            **({} if request.input_location is None else {"inputLocation": request.input_location}),
        },
        **({"responseParameters": response} if response else {}),
        **(
            {}
            if included is None
            else {
                "responseBody": {
                    "content": base64.b64encode(included).decode(),
                    "encoding": "BASE64",
                }
            }
        ),
        "inferenceId": request.inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }


def _below(path: str, headers: Mapping[str, str], name: str) -> str:
    extension = headers.get(f"{PREFIX}s3outputpathextension", "").strip("/")
    return "/".join(
        part
        for part in (path.rstrip("/"), extension, headers.get(f"{PREFIX}filename", name))
        if part
    )


def _stamp(when: float) -> str:
    return (
        time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when)) + f".{int(when * 1000) % 1000:03d}Z"
    )
