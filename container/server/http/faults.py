"""Faults as answers: one sentence of JSON."""

from __future__ import annotations

from container.server.codecs.envelope import JSON_TYPE, encoded_fault
from container.server.http.message import Response
from container.server.types import RequestFault

OUR_FAULT = "The server failed on this request; its log says why, and other requests are answered."


def fault_response(fault: RequestFault) -> Response:
    """The answer of a request that gets none."""
    wait = fault.retry_after_seconds
    headers = () if wait is None else ((b"retry-after", b"%d" % wait),)
    return Response(fault.status, encoded_fault(str(fault)), JSON_TYPE, headers)


def our_fault() -> Response:
    """The answer to a request on which this server itself failed: 500, never by anything that a
    client sends.
    """
    return Response(500, encoded_fault(OUR_FAULT), JSON_TYPE)
