"""Dispatches requests by path, and turns every fault into a response: of all servers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import NamedTuple

from container.server.http.messages import (
    Application,
    ErrorBody,
    Reply,
    Request,
    Response,
    error_body,
    fault_response,
    internal_fault_response,
)
from container.server.telemetry.failure_log import FailureLog
from container.server.types import (
    BINARY_TYPE,
    RequestFault,
    UnknownPath,
    UnsupportedEncoding,
    WrongMethod,
)

Stages = dict[str, float]
Answer = Callable[[Request, Stages], Awaitable[Reply]]
"""Answers a request and writes down the seconds of its stages. Raises RequestFault."""
UNANSWERED, HEALTH = (503, 507), "health"
CLIENT_LEFT = 499
"""The status recorded for a request whose client left before its answer; no client reads it."""


class Route(NamedTuple):
    """A path: its `kind` in metrics, and its answers by method."""

    kind: str
    methods: Mapping[str, Answer]


def dispatch_by_path(
    find_route: Callable[[str], Route | None],
    *,
    elsewhere: str,
    log: FailureLog,
    over: Callable[..., object] = lambda *_: None,
    error_body: ErrorBody = error_body,
) -> Application:
    """Return an application that answers by path, and turns every fault into a response.

    `elsewhere` is the sentence for unknown paths. `log` gets a line for a request that cannot be
    answered; `over` records each: its kind, status, seconds and stages.
    """

    async def answer(request: Request) -> Reply:
        begun = perf_counter()
        stages: Stages = {}
        route = find_route(request.path)
        kind = "elsewhere" if route is None else route.kind
        method = None if route is None else route.methods.get(request.method)
        response: Reply
        try:
            response = (
                _unroutable(route, request, elsewhere, error_body)
                if method is None
                else await method(request, stages)
            )
        except RequestFault as fault:
            response = fault_response(fault, error_body)
        except asyncio.CancelledError:
            over(kind, CLIENT_LEFT, perf_counter() - begun, stages)
            raise
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # a panic in a library of Rust is no Exception
            log.report("request_failed", fault, stage="http", status=500)
            response = internal_fault_response(error_body)
        status = response.status
        # After the answer is written, which happens in this turn of the event loop.
        asyncio.get_running_loop().call_soon(over, kind, status, perf_counter() - begun, stages)
        if status in UNANSWERED and kind != HEALTH:
            log.report("request_unanswered", stage="http", level="warning", status=status)
        return response

    return answer


def _unroutable(
    route: Route | None, request: Request, elsewhere: str, error_body: ErrorBody
) -> Response:
    path = request.path[:60]
    if route is None:
        fault = UnknownPath(f"There is no {path!r} here; {elsewhere}")
        return fault_response(fault, error_body)
    allowed = ", ".join(route.methods)
    wrong = WrongMethod(f"{path} takes {allowed}, not {request.method}.")
    response = fault_response(wrong, error_body)
    return response._replace(headers=((b"allow", allowed.encode()),))


def refuse_encoding(request: Request) -> None:
    """Raise UnsupportedEncoding for a body that is compressed."""
    encoding = request.headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise UnsupportedEncoding(
            f"Content-Encoding is {encoding.decode('latin-1')[:40]!r}; bodies are read "
            "uncompressed only."
        )


def content_type(request: Request) -> str:
    """Return the content type; KServe's own header of the header's length means the binary one."""
    length = request.headers.get(b"inference-header-content-length")
    if length is not None:
        return f"{BINARY_TYPE};json-header-size={length.decode('latin-1')}"
    return request.headers.get(b"content-type", b"").decode("latin-1")
