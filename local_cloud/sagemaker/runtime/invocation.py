"""One invocation: passed on to an instance, measured, and answered as SageMaker Runtime does."""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping
from dataclasses import dataclass

from local_cloud.containers.archive import ArchiveError
from local_cloud.containers.container import NotListening
from local_cloud.containers.server_client import Response
from local_cloud.ministack.account import account_id, region
from local_cloud.protocol.errors import AwsError, Reply, error_reply
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.hosting.multi_model import LoadError, Loading, TargetModelError
from local_cloud.sagemaker.metrics.invocation_metrics import InvocationMetrics
from local_cloud.sagemaker.runtime.streams import StreamedReply

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


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """A request to an endpoint; its model may take `model_seconds`; `queued` ones waited.

    `component` is whose copies answer, `adapter` what they answer with.
    """

    endpoint: str
    headers: Mapping[str, str]
    body: bytes
    begun: float
    model_seconds: float = MODEL_SECONDS
    queued: bool = False
    component: str | None = None
    adapter: str | None = None

    @property
    def passed_on(self) -> dict[str, str]:
        """The headers that the container gets."""
        headers = {name: self.headers[name] for name in PASSED_ON if name in self.headers}
        return headers if self.adapter is None else {**headers, ADAPTER: self.adapter}

    def metrics(self, instance: Instance) -> InvocationMetrics:
        """Return what records an answer of an instance."""
        return InvocationMetrics(
            endpoint=self.endpoint,
            variant=instance.variant,
            queued=self.queued,
            component=self.adapter or self.component,
        )

    def send(self, instance: Instance) -> Reply | StreamedReply:
        """Invoke one instance. Raises NotListening, so that another one may be tried."""
        metrics, begin = self.metrics(instance), time.monotonic()
        try:
            response, loading = self._exchange(instance)
        except NotListening:
            raise
        except LoadError as error:
            metrics.record(status=error.response.status, model_seconds=0.0, overhead_seconds=0.0)
            return self.model_error(instance, error.response)
        except (OSError, http.client.HTTPException) as error:
            return self.unreachable(instance, error, begin)
        model_seconds = (
            time.monotonic() - begin - loading.downloading_seconds - loading.loading_seconds
        )
        metrics.record(
            status=response.status, model_seconds=model_seconds, overhead_seconds=begin - self.begun
        )
        if instance.target_models is not None:
            metrics.record_loading(loading)
        if response.status >= 400:
            return self.model_error(instance, response)
        return 200, passed_back(response.headers, instance), response.body

    def unreachable(self, instance: Instance, error: Exception, begin: float) -> Reply:
        """Return the reply for a server that did not answer."""
        self.metrics(instance).record(
            status=0, model_seconds=time.monotonic() - begin, overhead_seconds=begin - self.begun
        )
        message = f"The container did not answer ({error})."
        if isinstance(error, TimeoutError):
            message = (
                "Your invocation timed out while waiting for a response from container primary."
            )
        return self.model_error(instance, Response(status=0, headers={}, body=message.encode()))

    def _exchange(self, instance: Instance) -> tuple[Response, Loading]:
        target_model = self.headers.get(TARGET_MODEL)
        headers = self.passed_on
        if instance.target_models is None:
            if target_model is not None:
                raise refusal(
                    "TargetModel is only for multi-model endpoints; this endpoint has one model."
                )
            response = instance.client.request(
                "POST", "/invocations", self.body, headers, self.model_seconds
            )
            return response, Loading(cache_hit=True)
        if target_model is None:
            raise refusal("TargetModel is required: this is a multi-model endpoint.")
        try:
            return instance.target_models.invoke(
                target_model.removeprefix("/"), self.body, headers, self.model_seconds
            )
        except (TargetModelError, ArchiveError) as error:
            raise refusal(str(error)) from error

    def model_error(self, instance: Instance, response: Response) -> Reply:
        """Wrap a server's own error as SageMaker Runtime does."""
        reply = response.body.decode(errors="replace")
        side = "client" if 400 <= response.status < 500 else "server"
        received = f'Received {side} error ({response.status}) from primary with message "{reply}".'
        message = f"{received} See {instance.log} for more information."
        log_group = f"log-group:/aws/sagemaker/Endpoints/{self.endpoint}"
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
