"""One invocation: passed on to an instance, measured, and answered as SageMaker Runtime does."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from local_cloud.account import account_id, region
from local_cloud.containers.archive import ArchiveError
from local_cloud.containers.container import NotListening
from local_cloud.containers.server_client import Response
from local_cloud.protocol.errors import AwsError, Reply, error_reply
from local_cloud.sagemaker.components.component import Component
from local_cloud.sagemaker.hosting.endpoint import Endpoint
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.hosting.multi_model import LoadError, TargetModelError
from local_cloud.sagemaker.metrics import Metrics, component_metrics, variant_metrics

MODEL_SECONDS = 60.0
TARGET_MODEL = "x-amzn-sagemaker-target-model"
TARGET_VARIANT = "x-amzn-sagemaker-target-variant"
INFERENCE_ID = "x-amzn-sagemaker-inference-id"
ADAPTER = "x-amzn-sagemaker-adapter-identifier"
SESSION = "x-amzn-sagemaker-session-id"
PASSED_ON = (
    "content-type", "accept", "x-amzn-sagemaker-custom-attributes", INFERENCE_ID, SESSION,
)  # fmt: skip
PASSED_BACK = ("content-type", "x-amzn-sagemaker-custom-attributes")
"""In lower case, in which MiniStack leaves a reply's content type as the container gave it."""
TIMED_OUT = "Your invocation timed out while waiting for a response from container primary."


@dataclass(kw_only=True)
class StreamedReply:
    """Status, headers and parts of an answer that is still being written.

    `leave` ends it early, from any thread. `held` is what must not end before the last part was
    read: the instance's count of requests.
    """

    status: int
    headers: dict[str, str]
    parts: Iterator[bytes]
    leave: Callable[[], None]
    held: ExitStack = field(default_factory=ExitStack)

    def close(self) -> None:
        """Leave the container, and let go of what is held."""
        self.leave()
        self.held.close()


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A request to an endpoint; its model may take `model_seconds`; `queued` ones waited.

    `component`, where one is named, is answered by one of `copies`, its own or its base's.
    """

    endpoint: Endpoint
    headers: Mapping[str, str]
    body: bytes
    model_seconds: float = MODEL_SECONDS
    queued: bool = False
    component: Component | None = None
    copies: int = 0

    @property
    def passed_on(self) -> dict[str, str]:
        """The headers that the container gets."""
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        if self.component is not None and self.component.base is not None:
            headers[ADAPTER] = self.component.name
        return headers

    def record(self, instance: Instance, status: int, model_seconds: float) -> Metrics:
        """Record an answer, 0 where none came; return the metrics of the instance's variant."""
        running = None if self.queued else self.endpoint.running(instance.variant)
        metrics = variant_metrics(self.endpoint.name, instance.variant)
        metrics.record(status, model_seconds, running)
        if self.component is not None:
            component_metrics(self.component.name).record(status, model_seconds, self.copies)
        return metrics

    def send(self, instance: Instance) -> Reply | StreamedReply:
        """Invoke one instance. Raises NotListening, so that another one may be tried."""
        begin = time.monotonic()
        try:
            response, loading_seconds = self._exchange(instance)
        except NotListening:
            raise
        except LoadError as error:
            self.record(instance, error.response.status, 0.0)
            return self.model_error(instance, error.response)
        except (OSError, http.client.HTTPException) as error:
            return self.unreachable(instance, error, begin)
        metrics = self.record(instance, response.status, time.monotonic() - begin - loading_seconds)
        if instance.target_models is not None:
            metrics.add("ModelCacheHit", int(loading_seconds == 0))
        if response.status >= 400:
            return self.model_error(instance, response)
        return 200, passed_back(response.headers, instance), response.body

    def unreachable(self, instance: Instance, error: Exception, begin: float) -> Reply:
        """Return the reply for a server that did not answer."""
        self.record(instance, 0, time.monotonic() - begin)
        is_late = isinstance(error, TimeoutError)
        message = TIMED_OUT if is_late else f"The container did not answer ({error})."
        return self.model_error(instance, Response(status=0, headers={}, body=message.encode()))

    def _exchange(self, instance: Instance) -> tuple[Response, float]:
        """The server's answer, and how long a target model's loading took."""
        target_model = self.headers.get(TARGET_MODEL)
        if instance.target_models is None:
            if target_model is not None:
                raise refusal(
                    "TargetModel is only for multi-model endpoints; this endpoint has one model."
                )
            response = instance.client.request(
                "POST", "/invocations", self.body, self.passed_on, self.model_seconds
            )
            return response, 0.0
        if target_model is None:
            raise refusal("TargetModel is required: this is a multi-model endpoint.")
        try:
            return instance.target_models.invoke(
                target_model.removeprefix("/"), self.body, self.passed_on, self.model_seconds
            )
        except (TargetModelError, ArchiveError) as error:
            raise refusal(str(error)) from error

    def model_error(self, instance: Instance, response: Response) -> Reply:
        """Wrap a server's own error as SageMaker Runtime does."""
        reply = response.body.decode(errors="replace")
        side = "client" if 400 <= response.status < 500 else "server"
        received = f'Received {side} error ({response.status}) from primary with message "{reply}".'
        message = f"{received} See {instance.log} for more information."
        log_group = f"log-group:/aws/sagemaker/Endpoints/{self.endpoint.name}"
        return error_reply(
            AwsError("ModelError", message, 424),
            OriginalStatusCode=response.status,
            OriginalMessage=reply,
            LogStreamArn=f"arn:aws:logs:{region()}:{account_id()}:{log_group}",
        )


def passed_back(headers: Mapping[str, str], instance: Instance) -> dict[str, str]:
    """Return the headers of a container's answer that its caller gets, and the variant's name."""
    found = {name: headers[name] for name in PASSED_BACK if name in headers}
    return {**found, "x-Amzn-Invoked-Production-Variant": instance.variant}


def refusal(message: str) -> AwsError:
    """Return SageMaker Runtime's usual refusal."""
    return AwsError("ValidationError", message)
