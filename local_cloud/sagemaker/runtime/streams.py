"""Invocations whose answers are passed on part by part, in SageMaker's event stream.

Source: Smithy 2.0, "Amazon Event Stream Specification".
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ministack.services.kinesis import _eventstream_message

from local_cloud.containers.container import NotListening
from local_cloud.containers.server_client import OpenResponse, Response
from local_cloud.protocol.errors import Reply
from local_cloud.sagemaker.hosting.instance import Instance
from local_cloud.sagemaker.runtime.invocation import (
    TIMED_OUT,
    Invocation,
    StreamedReply,
    passed_back,
    refusal,
)

CONTENT_TYPE = "application/vnd.amazon.eventstream"
AMZN_CONTENT_TYPE = "X-Amzn-SageMaker-Content-Type"


@dataclass(frozen=True, kw_only=True)
class StreamedInvocation(Invocation):
    """An invocation whose parts are passed on as they come.

    The pause between two parts may last `model_seconds`; AWS's limit is not published.
    """

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
            if response.status >= 400:
                return self._error(instance, response, begin)
        except NotListening:
            raise
        except (OSError, http.client.HTTPException) as error:
            return self.unreachable(instance, error, begin)
        found = passed_back(response.headers, instance)
        content_type = found.pop("content-type", "application/octet-stream")
        return StreamedReply(
            status=response.status,
            headers={**found, AMZN_CONTENT_TYPE: content_type, "content-type": CONTENT_TYPE},
            parts=self._parts(instance, response, begin),
            leave=response.close,
        )

    def _error(self, instance: Instance, response: OpenResponse, begin: float) -> Reply:
        """The reply for a container that refuses before it streams."""
        try:
            body = b"".join(response.chunks())
        finally:
            response.close()
        self.record(instance, response.status, time.monotonic() - begin)
        whole = Response(status=response.status, headers=response.headers, body=body)
        return self.model_error(instance, whole)

    def _parts(self, instance: Instance, response: OpenResponse, begin: float) -> Iterator[bytes]:
        """Yield the parts, with an exception where they break off; then record the invocation."""
        first, broken = 0.0, False
        try:
            for chunk in response.chunks():
                first = first or time.monotonic() - begin
                yield from map(payload_part, uneven_parts(chunk))
        except (OSError, http.client.HTTPException) as error:
            broken = True
            late = isinstance(error, TimeoutError)
            message = f"The container's stream ended before its answer did ({error!r})."
            yield stream_exception(
                "ModelStreamError",
                Message=TIMED_OUT if late else message,
                ErrorCode="ModelInvocationTimeExceeded" if late else "StreamBroken",
            )
        finally:
            status = 0 if broken else response.status
            metrics = self.record(instance, status, time.monotonic() - begin)
            if first:
                metrics.add("FirstChunkModelLatency", first * 1e6, "Microseconds")
                metrics.add("MidStreamErrors", int(broken))


def payload_part(content: bytes) -> bytes:
    """Return an event that carries a part of a container's body."""
    headers = {":event-type": "PayloadPart", ":content-type": "application/octet-stream"}
    return bytes(_eventstream_message({**headers, ":message-type": "event"}, content))


def stream_exception(kind: str, **fields: str) -> bytes:
    """Return the exception that ends a stream."""
    headers = {":exception-type": kind, ":content-type": "application/json"}
    content = json.dumps(fields).encode()
    return bytes(_eventstream_message({**headers, ":message-type": "exception"}, content))


def uneven_parts(chunk: bytes) -> Iterator[bytes]:
    """Yield a chunk in two parts: inside its first character of several bytes, or in its middle.

    AWS promises no boundaries, so a client that relies on whole lines must fail here.
    """
    wide = next((position for position, byte in enumerate(chunk) if byte >= 0xC0), None)
    cut = len(chunk) // 2 if wide is None else wide + 1
    yield from filter(None, (chunk[:cut], chunk[cut:]))
