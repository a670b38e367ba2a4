"""Dispatches requests by path, and the paths of a server of one model."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

from container.server.codecs.envelope import JSON_TYPE, json_bytes
from container.server.http.inference import Plane, infer
from container.server.http.messages import (
    Application,
    Request,
    Response,
    fault_response,
    internal_fault_response,
)
from container.server.observers import CLIENT_LEFT, NullRequestObserver, RequestObserver
from container.server.types import RequestFault, Signature, TensorSignature, Unavailable
from onboarding.manifest import TensorRecord

Answer = Callable[[Request, dict[str, float]], Awaitable[Response]]
"""Answers a request and writes down the seconds of its stages. Raises RequestFault."""


class Route(NamedTuple):
    """A path: `kind` is its name in metrics, `methods` who answers which method.

    `model` the name in it.
    """

    kind: str
    methods: Mapping[str, Answer]
    model: str | None = None


FindRoute = Callable[[str], Route | None]
"""The route of a path."""


def dispatch_by_path(
    find_route: FindRoute,
    *,
    elsewhere: str,
    observer: RequestObserver,
    failed: Callable[[BaseException], None],
) -> Application:
    """Return an application that answers by path, and turns every fault into a response.

    `elsewhere` is the sentence for unknown paths; `failed` is called with faults of this server.
    """

    async def answer(request: Request) -> Response:
        begun = perf_counter()
        stages: dict[str, float] = {}
        route = find_route(request.path)
        kind, model = ("elsewhere", None) if route is None else (route.kind, route.model)
        method = None if route is None else route.methods.get(request.method)
        try:
            response = (
                _unroutable(route, request, elsewhere)
                if method is None
                else await method(request, stages)
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
            response = internal_fault_response()
        observer.request_over(kind, response.status, perf_counter() - begun, stages, model=model)
        return response

    return answer


def _unroutable(route: Route | None, request: Request, elsewhere: str) -> Response:
    if route is None:
        return _refusal(404, f"There is no {request.path[:60]!r} here; {elsewhere}")
    allowed = ", ".join(route.methods)
    response = _refusal(405, f"{request.path[:60]} takes {allowed}, not {request.method}.")
    return response._replace(headers=((b"allow", allowed.encode()),))


def _refusal(status: int, sentence: str) -> Response:
    fault = RequestFault(sentence)
    fault.status = status
    return fault_response(fault)


VERSION = "0.1.0"


def server_metadata() -> Response:
    """The server's name, version and extensions of the protocol."""
    return _document(
        {"name": "roundhouse", "version": VERSION, "extensions": ["binary_tensor_data"]}
    )


def model_metadata(signature: Signature | TensorSignature, platform: str) -> Response:
    """Return a model's inputs and outputs; -1 is any size.

    `platform` is the engine's platform as Triton names it.
    """
    if isinstance(signature, TensorSignature):
        inputs, outputs = (
            [_tensor(record) for record in signature.inputs],
            [_tensor(record) for record in signature.outputs],
        )
    else:
        inputs = [{"name": signature.input_name, "datatype": "BYTES", "shape": [-1, 1]}]
        outputs = [{"name": signature.output_name, "datatype": "FP32", "shape": [-1, -1]}]
    return _document(
        {
            "name": signature.model,
            "versions": [signature.version],
            "platform": platform,
            "inputs": inputs,
            "outputs": outputs,
        }
    )


def _tensor(record: TensorRecord) -> dict[str, Any]:
    return {"name": record.name, "datatype": record.datatype, "shape": list(record.shape)}


def _document(document: dict[str, Any]) -> Response:
    return Response(200, json_bytes(document), JSON_TYPE)


METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
NOT_READY = "The server is not ready: it is loading, draining or its engine fails."
Metrics = Callable[[], Awaitable[bytes]]
"""The metrics in Prometheus's text format."""


def model_application(
    plane: Plane,
    *,
    max_body_bytes: int,
    deadline_seconds: float,
    platform: str,
    metrics: Metrics,
    failed: Callable[[BaseException], None],
    observer: RequestObserver | None = None,
) -> Application:
    """Return the HTTP application of one model.

    `max_body_bytes` bounds decompressed bodies; `failed` is called with faults of this server.
    """

    async def ready(request: Request, stages: dict[str, float]) -> Response:
        if not plane.ready:
            raise Unavailable(NOT_READY)
        return EMPTY

    async def describe(request: Request, stages: dict[str, float]) -> Response:
        return model_metadata(plane.signature, platform)

    model, version = plane.signature.model, plane.signature.version
    routes = common_routes(metrics)
    routes["/ping"] = routes["/v2/health/ready"] = Route(kind="health", methods={"GET": ready})
    inference = partial(
        infer, plane, max_body_bytes=max_body_bytes, deadline_seconds=deadline_seconds
    )
    routes["/invocations"] = Route(kind="infer", methods={"POST": inference})
    for path in (f"/v2/models/{model}", f"/v2/models/{model}/versions/{version}"):
        routes[path] = Route(kind="metadata", methods={"GET": describe})
        routes[f"{path}/ready"] = routes["/ping"]
        routes[f"{path}/infer"] = routes["/invocations"]
    elsewhere = f"GET /ping and POST /invocations are, with model {model!r}."
    return dispatch_by_path(
        routes.get,
        elsewhere=elsewhere,
        observer=NullRequestObserver() if observer is None else observer,
        failed=failed,
    )


EMPTY = Response(200, b"", JSON_TYPE)


def common_routes(metrics: Metrics) -> dict[str, Route]:
    """The paths that every server of ours has, by path."""

    async def metrics_text(request: Request, stages: dict[str, float]) -> Response:
        return Response(200, await metrics(), METRICS_TYPE)

    return {
        "/v2": Route(kind="metadata", methods={"GET": constant_answer(server_metadata())}),
        "/v2/health/live": Route(kind="health", methods={"GET": constant_answer(EMPTY)}),
        "/metrics": Route(kind="metrics", methods={"GET": metrics_text}),
    }


def constant_answer(response: Response) -> Answer:
    """Answers the same to everyone."""

    async def answer(request: Request, stages: dict[str, float]) -> Response:
        return response

    return answer
