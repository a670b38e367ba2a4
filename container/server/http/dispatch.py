"""From a request to the function that answers it; faults become answers here, and nowhere else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from time import perf_counter
from typing import NamedTuple

from container.server.http.faults import fault_response, our_fault
from container.server.http.message import Answering, Request, Response
from container.server.http.observer import CLIENT_LEFT, Observer
from container.server.types import RequestFault

Answer = Callable[[Request, dict[str, float]], Awaitable[Response]]
"""Answers a request and writes down the seconds of its stages. Raises RequestFault."""


class Route(NamedTuple):
    """A path: `kind` is its name in metrics, `methods` who answers which method, `model` the name
    in it.
    """

    kind: str
    methods: Mapping[str, Answer]
    model: str | None = None


Found = Callable[[str], Route | None]
"""The route of a path."""


def dispatching(
    found: Found, *, elsewhere: str, observer: Observer, failed: Callable[[BaseException], None]
) -> Answering:
    """Answers by route; `elsewhere` is the sentence of every other path, `failed` hears of faults
    that are no client's.
    """

    async def answer(request: Request) -> Response:
        begun = perf_counter()
        stages: dict[str, float] = {}
        route = found(request.path)
        kind, model = ("elsewhere", None) if route is None else (route.kind, route.model)
        how = None if route is None else route.methods.get(request.method)
        try:
            response = (
                _refused(route, request, elsewhere) if how is None else await how(request, stages)
            )
        except RequestFault as fault:
            response = fault_response(fault)
        except asyncio.CancelledError:
            observer.request_over(kind, CLIENT_LEFT, perf_counter() - begun, stages, model=model)
            raise
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as fault:  # a panic in a library of Rust is no Exception
            failed(fault)
            response = our_fault()
        observer.request_over(kind, response.status, perf_counter() - begun, stages, model=model)
        return response

    return answer


def _refused(route: Route | None, request: Request, elsewhere: str) -> Response:
    if route is None:
        return _refusal(404, f"There is no {request.path[:60]!r} here; {elsewhere}")
    allowed = ", ".join(route.methods)
    response = _refusal(405, f"{request.path[:60]} takes {allowed}, not {request.method}.")
    return response._replace(headers=((b"allow", allowed.encode()),))


def _refusal(status: int, sentence: str) -> Response:
    fault = RequestFault(sentence)
    fault.status = status
    return fault_response(fault)
