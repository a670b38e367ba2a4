"""Invocations whose answers are streamed: as SageMaker's event stream, or as they are."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from dataclasses import dataclass

from local_cloud.containers.container import NotListening
from local_cloud.containers.server_client import OpenResponse, Response
from local_cloud.protocol.errors import Reply
from local_cloud.protocol.event_stream import CONTENT_TYPE
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.runtime.invocation import PASSED_BACK, Invocation, passed_back, refusal
from local_cloud.sagemaker.runtime.streams import (
    Progress,
    StreamedReply,
    event_stream,
    plain_stream,
)

AMZN_CONTENT_TYPE = "X-Amzn-SageMaker-Content-Type"


@dataclass(frozen=True, kw_only=True)
class StreamedInvocation(Invocation):
    """An invocation whose parts are passed on as they come.

    With `is_plain` its bytes and its errors are the container's own, as the OpenAI path has them.
    The pause between two parts may last `model_seconds`; AWS's limit is not published.
    """

    is_plain: bool = False

    def send(self, instance: Instance) -> Reply | StreamedReply:
        """Invoke one instance. Raises NotListening, so that another one may be tried."""
        if instance.target_models is not None:
            raise refusal(
                "InvokeEndpointWithResponseStream does not support multi-model endpoints."
            )
        begin = time.monotonic()
        try:
            response = instance.client.open(
                "/invocations", self.body, self.passed_on, self.model_seconds
            )
        except NotListening:
            raise
        except (OSError, http.client.HTTPException) as error:
            return self.unreachable(instance, error, begin)
        if response.status >= 400 and not self.is_plain:
            return self._error(instance, response, begin)
        progress = Progress(begun=begin)
        if self.is_plain:
            headers = {
                name: response.headers[name] for name in PASSED_BACK[:1] if name in response.headers
            }
            parts = plain_stream(progress, response)
        else:
            found = passed_back(response.headers, instance)
            content_type = found.pop("content-type", "application/octet-stream")
            headers = {**found, AMZN_CONTENT_TYPE: content_type, "content-type": CONTENT_TYPE}
            parts = event_stream(progress, response)
        return StreamedReply(
            status=response.status,
            headers=headers,
            parts=self._recorded_parts(instance, response, progress, parts),
            leave=response.close,
        )

    def _error(self, instance: Instance, response: OpenResponse, begin: float) -> Reply:
        """The reply for a container that refuses before it streams."""
        progress = Progress(begun=begin)
        body = b"".join(progress.parts(response))
        response.close()
        self._record(instance, response.status, progress)
        whole = Response(status=response.status, headers=response.headers, body=body)
        return self.model_error(instance, whole)

    def _recorded_parts(
        self,
        instance: Instance,
        response: OpenResponse,
        progress: Progress,
        parts: Iterator[bytes],
    ) -> Iterator[bytes]:
        """Yield the parts, then record the invocation, however it ends."""
        try:
            yield from parts
        finally:
            self._record(instance, response.status, progress)

    def _record(self, instance: Instance, status: int, progress: Progress) -> None:
        now, metrics = time.monotonic(), self.metrics(instance)
        overhead = progress.begun - self.begun
        broken = progress.broken is not None
        metrics.record(
            status=0 if broken else status,
            model_seconds=now - progress.begun,
            overhead_seconds=overhead,
        )
        if progress.first is not None:
            first = progress.first - progress.begun
            metrics.record_stream(first_part=first, overhead_seconds=overhead, broken=broken)
