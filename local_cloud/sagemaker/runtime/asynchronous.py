"""Asynchronous endpoints: requests wait in a queue, and answers go to S3."""

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

from local_cloud.account import in_background, read_object, write_object
from local_cloud.cloudwatch import metric_store
from local_cloud.containers.archive import s3_location
from local_cloud.protocol.errors import AwsError, Reply, json_reply
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.metrics import variant_metrics
from local_cloud.sagemaker.runtime.invocation import INFERENCE_ID, Invocation, refusal
from local_cloud.settings import Settings
from onboarding.metrics import INVOCATIONS

PREFIX = "x-amzn-sagemaker-"
INLINE_BYTES = 128_000
MODEL_SECONDS = 900
CONCURRENT_PER_INSTANCE = 4
POLL_SECONDS = 0.05
METRICS_EVERY_SECONDS = 60.0
Invoke = Callable[[Endpoint, Invocation], Reply]
logger = logging.getLogger("roundhouse.asynchronous")


@dataclass(frozen=True, kw_only=True)
class Queued:
    """A request that waits."""

    inference_id: str
    output_location: str
    failure_location: str | None
    headers: Mapping[str, str]
    body: bytes
    kms_key: str | None


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
        kms_key=output.get("KmsKeyId"),
    )


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
        """Write the answer to S3, or why there is none, and count it for the first variant."""
        failed, kind, content = True, "text/plain", b""
        try:
            kind, content = self._answer_to(request)
            failed = False
        except AwsError as error:
            content = f"{error.code}: {error.message}".encode()
        finally:
            with self._turn:
                self.answering -= 1
        traffic = self.endpoint.traffic
        if traffic is not None:
            metrics = variant_metrics(self.endpoint.name, next(iter(traffic.fleet.production)))
            metrics.add("InvocationsProcessed", 1)
            metrics.add("InvocationFailures", int(failed))
        url = request.failure_location if failed else request.output_location
        if url and not write_object(*s3_location(url), content, kind, request.kms_key):
            logger.warning("the answer to %s cannot be written to %s", request.inference_id, url)

    def _answer_to(self, request: Queued) -> tuple[str, bytes]:
        """The content type and body of an answer. Raises AwsError where there is none."""
        location = request.headers.get(f"{PREFIX}inputlocation")
        body = request.body if location is None else read_object(*s3_location(location))
        if body is None:
            raise AwsError("ClientError", f"the input {location} cannot be read.")
        invocation = Invocation(
            endpoint=self.endpoint,
            headers=request.headers,
            body=body,
            model_seconds=MODEL_SECONDS,
            queued=True,
        )
        status, headers, content = self.invoke(self.endpoint, invocation)
        if status != 200:
            raise AwsError("ModelError", str(json.loads(content)["message"]))
        return headers.get("content-type") or "application/octet-stream", content

    def _publish_backlog(self) -> None:
        """The queue's metrics; they scale an endpoint up from no instances."""
        backlog, instances = len(self.waiting) + self.answering, self._instances()
        values = {
            "ApproximateBacklogSizePerInstance": backlog / max(instances, 1),
            "HasBacklogWithoutCapacity": int(backlog > 0 and instances == 0),
        }
        for name, value in values.items():
            dimensions = {"EndpointName": self.endpoint.name}
            metric_store.add(INVOCATIONS, name, value, dimensions, "Count")


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
