"""Asynchronous endpoints: requests wait in a queue, answers go to S3, topics hear of both."""

from __future__ import annotations

import json
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from local_cloud.containers.archive import s3_location
from local_cloud.ministack.account import (
    in_background,
    publish,
    read_object,
    record_metric,
    region,
    write_object,
)
from local_cloud.protocol.errors import AwsError, Reply, json_reply, present_fields
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.metrics.invocation_metrics import InvocationMetrics
from local_cloud.sagemaker.runtime.invocation import INFERENCE_ID, Invocation, refusal
from local_cloud.settings import Settings
from onboarding.metrics import INVOCATIONS

PREFIX = "x-amzn-sagemaker-"
INLINE_BYTES = 128_000
TTL_SECONDS, MODEL_SECONDS = 21_600, 900
CONCURRENT_PER_INSTANCE = 4
POLL_SECONDS = 0.05
METRICS_EVERY_SECONDS = 60.0
Invoke = Callable[[Endpoint, Invocation], Reply]
logger = logging.getLogger("roundhouse.asynchronous")


@dataclass(frozen=True, kw_only=True)
class Queued:
    """A request that waits; `received` is in seconds since the epoch."""

    inference_id: str
    output_location: str
    failure_location: str | None
    headers: Mapping[str, str]
    body: bytes
    received: float
    output_config: Mapping[str, Any]

    @property
    def input_location(self) -> str | None:
        """Where its body lies, unless it is in the request itself."""
        return self.headers.get(f"{PREFIX}inputlocation")

    def seconds(self, field: str, default: float) -> float:
        """Return how long a field says that something may take."""
        return float(self.headers.get(PREFIX + field, default))


@dataclass(frozen=True, kw_only=True)
class Answered:
    """The result of a request: Completed with a body, or Failed or Expired with a reason."""

    status: str
    reason: str | None = None
    content_type: str = "application/octet-stream"
    body: bytes = b""


def read_request(config: Mapping[str, Any], headers: Mapping[str, str], body: bytes) -> Queued:
    """Read a request, or refuse it as SageMaker Runtime does."""
    if (headers.get(f"{PREFIX}inputlocation") is None) == (not body):
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
    failures = output.get("S3FailurePath")
    return Queued(
        inference_id=headers.get(INFERENCE_ID) or str(uuid.uuid4()),
        output_location=f"{output['S3OutputPath'].rstrip('/')}/{name}.out",
        failure_location=failures and f"{failures.rstrip('/')}/{name}-error.out",
        headers=passed_on,
        body=body,
        received=time.time(),
        output_config=output,
    )


def deliver(endpoint: str, request: Queued, answered: Answered) -> None:
    """Write the answer or the failure to S3, and notify the topic for it."""
    completed = answered.status == "Completed"
    url = request.output_location if completed else request.failure_location
    content = answered.body if completed else str(answered.reason).encode()
    if url is not None:
        content_type = answered.content_type if completed else "text/plain"
        kms_key = request.output_config.get("KmsKeyId")
        if not write_object(*s3_location(url), content, content_type, kms_key):
            logger.warning("the answer to %s cannot be written to %s", request.inference_id, url)
    topics = request.output_config.get("NotificationConfig") or {}
    topic = topics.get("SuccessTopic" if completed else "ErrorTopic")
    if topic is not None and not publish(topic, _notification(endpoint, request, answered)):
        logger.warning("the topic %s does not exist", topic)


def _notification(endpoint: str, request: Queued, answered: Answered) -> str:
    """Source: recorded notifications of asynchronous endpoints."""
    if answered.status == "Completed":
        response = {
            "contentType": answered.content_type,
            "outputLocation": request.output_location,
        }
    else:
        response = present_fields(failureLocation=request.failure_location)
    content = {
        "awsRegion": region(),
        "eventTime": _timestamp(time.time()),
        "receivedTime": _timestamp(request.received),
        "invocationStatus": answered.status,
        "requestParameters": {
            "endpointName": endpoint,
            **present_fields(
                accept=request.headers.get("accept"), inputLocation=request.input_location
            ),
        },
        **present_fields(failureReason=answered.reason, responseParameters=response or None),
        "inferenceId": request.inference_id,
        "eventVersion": "1.0",
        "eventSource": "aws:sagemaker",
        "eventName": "InferenceResult",
    }
    return json.dumps(content)


def _timestamp(when: float) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(when))
    return f"{seconds}.{int(when * 1000) % 1000:03d}Z"


@dataclass(kw_only=True)
class Queue:
    """One endpoint's waiting requests, and how many are being answered."""

    endpoint: Endpoint
    settings: Settings
    invoke: Invoke
    waiting: deque[Queued] = field(default_factory=deque)
    answering: int = 0
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def work(self) -> None:
        """Hand waiting requests to instances with room, and publish the backlog."""
        published = 0.0
        while self.endpoint.status != "Deleted":
            while self.waiting and self._free_capacity() > 0:
                with self._turn:
                    self.answering += 1
                in_background(self._answer, self.waiting.popleft())
            if time.monotonic() - published >= self.settings.scaled_wait(METRICS_EVERY_SECONDS):
                published = time.monotonic()
                self._publish_backlog()
            time.sleep(POLL_SECONDS)

    def _instances(self) -> int:
        traffic = self.endpoint.traffic
        variants = () if traffic is None else traffic.fleet.production.values()
        return sum(len(variant.instances) for variant in variants)

    def _free_capacity(self) -> int:
        """How many more requests the endpoint's instances take now."""
        traffic = self.endpoint.traffic
        if traffic is None:
            return 0
        client = traffic.fleet.config["AsyncInferenceConfig"].get("ClientConfig") or {}
        most = client.get("MaxConcurrentInvocationsPerInstance", CONCURRENT_PER_INSTANCE)
        return int(most) * self._instances() - self.answering

    def _answer(self, request: Queued) -> None:
        begun = time.time()
        try:
            answered = self._answer_to(request)
            self._publish_answer(request, answered, begun)
            deliver(self.endpoint.name, request, answered)
        finally:
            with self._turn:
                self.answering -= 1

    def _answer_to(self, request: Queued) -> Answered:
        if time.time() > request.received + request.seconds("requestttlseconds", TTL_SECONDS):
            return Answered(
                status="Expired",
                reason="The request waited in the queue for longer than RequestTTLSeconds.",
            )
        location = request.input_location
        body = request.body if location is None else read_object(*s3_location(location))
        if body is None:
            reason = f"ClientError: the input {location} cannot be read."
            return Answered(status="Failed", reason=reason)
        invocation = Invocation(
            endpoint=self.endpoint.name,
            headers=request.headers,
            body=body,
            begun=time.monotonic(),
            model_seconds=request.seconds("invocationtimeoutseconds", MODEL_SECONDS),
            queued=True,
        )
        try:
            status, headers, content = self.invoke(self.endpoint, invocation)
        except AwsError as error:
            return Answered(status="Failed", reason=f"{error.code}: {error.message}")
        if status != 200:
            return Answered(status="Failed", reason=str(json.loads(content)["message"]))
        kind = headers.get("content-type") or Answered.content_type
        return Answered(status="Completed", content_type=kind, body=content)

    def _publish_answer(self, request: Queued, answered: Answered, begun: float) -> None:
        """Metrics of one request, for the endpoint's first variant."""
        traffic = self.endpoint.traffic
        if traffic is not None:
            variant = next(iter(traffic.fleet.production))
            metrics = InvocationMetrics(endpoint=self.endpoint.name, variant=variant, queued=True)
            metrics.record_queued(
                answered.status,
                waited_seconds=begun - request.received,
                seconds=time.time() - request.received,
            )

    def _publish_backlog(self) -> None:
        """The queue's metrics; they scale an endpoint up from no instances."""
        backlog, instances = len(self.waiting) + self.answering, self._instances()
        values = {
            "ApproximateBacklogSize": backlog,
            "ApproximateBacklogSizePerInstance": backlog / max(instances, 1),
            "HasBacklogWithoutCapacity": int(backlog > 0 and instances == 0),
        }
        for name, value in values.items():
            record_metric(INVOCATIONS, name, value, "Count", {"EndpointName": self.endpoint.name})


class Asynchronous:
    """Accepts requests, and answers each endpoint's in turn as long as the endpoint exists."""

    def __init__(self, settings: Settings, invoke: Invoke) -> None:
        self._settings, self._invoke = settings, invoke
        self._queues: dict[int, Queue] = {}
        self._turn = threading.Lock()

    def accept(self, endpoint: Endpoint, headers: Mapping[str, str], body: bytes) -> Reply:
        """Queue a request, and reply where its answer or its failure will be."""
        traffic = endpoint.traffic
        if traffic is None or not endpoint.is_asynchronous:
            raise refusal(
                f"Endpoint {endpoint.name} is not an asynchronous endpoint that is InService: "
                "use InvokeEndpoint."
            )
        request = read_request(traffic.fleet.config["AsyncInferenceConfig"], headers, body)
        with self._turn:
            if id(endpoint) not in self._queues:
                queue = Queue(endpoint=endpoint, settings=self._settings, invoke=self._invoke)
                self._queues[id(endpoint)] = queue
                in_background(queue.work)
            self._queues[id(endpoint)].waiting.append(request)
        status, reply_headers, content = json_reply({"InferenceId": request.inference_id}, 202)
        reply_headers["X-Amzn-SageMaker-OutputLocation"] = request.output_location
        if request.failure_location is not None:
            reply_headers["X-Amzn-SageMaker-FailureLocation"] = request.failure_location
        return status, reply_headers, content
