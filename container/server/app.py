"""Starts the Python server by its environment.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 3 the archive is refused; 4 the engine or
the port cannot be used.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import Any

import uvloop

from container.archive import ArchiveRefused, EngineArchive, verify_archive
from container.server.codecs import heads, images, tensors, texts
from container.server.data_plane import (
    DataPlane,
    Model,
    load_batcher,
    servable_model,
)
from container.server.engines.engine import Engine, is_memory_shortage
from container.server.engines.loading import load_engine, running
from container.server.http.dispatch import (
    HEALTH,
    Route,
    Stages,
    content_type,
    dispatch_by_path,
    refuse_encoding,
)
from container.server.http.messages import Application, HttpLimits, Request, Response
from container.server.http.server import HttpServer
from container.server.process import (
    CannotListen,
    LoadFault,
    StoppedWhileLoading,
    ignore_stop_signals,
    listening_socket,
    load_unless_stopped,
    raise_descriptor_limit,
    refuse,
    stop_event,
    tune_interpreter,
    without_executor_wait,
)
from container.server.settings import (
    Settings,
    SettingsFault,
    available_cores,
    bind_address,
    process_settings,
)
from container.server.telemetry.failure_log import FailureLog, stderr
from container.server.telemetry.metrics import CONTENT_TYPE, ServerMetrics
from container.server.types import (
    JSON_TYPE,
    Form,
    Unavailable,
    first_line,
)

SETTING, ARCHIVE, ENGINE = 2, 3, 4
EMPTY = Response(200, b"", JSON_TYPE)
NOT_READY = "The server is not ready: it is loading, draining or its engine fails."
OpenEngine = Callable[[EngineArchive, Settings], Engine]


def _open_engine(archive: EngineArchive, settings: Settings) -> Engine:
    return load_engine(
        archive, slots=settings.slots, threads=settings.threads, cores=available_cores()
    )


def main(arguments: list[str], open_engine: OpenEngine = _open_engine) -> int:
    """Run the server and return its exit code; engines are opened by their manifest by default."""
    if arguments not in ([], ["serve"]):
        return refuse(
            SETTING,
            f"Unknown arguments {arguments}; use `serve` or none, and set the server by "
            "environment variables.",
        )
    try:
        settings = process_settings()
        if settings.multi_model:
            raise SettingsFault(
                "SAGEMAKER_MULTI_MODEL is true, and this server has one model; choose "
                "`server: triton` for a multi-model endpoint, or an endpoint of the model's own."
            )
        raise_descriptor_limit()
        with listening_socket(settings) as listener:
            return _serve(settings, listener, open_engine)
    except SettingsFault as fault:
        return refuse(SETTING, str(fault))
    except ArchiveRefused as fault:
        return refuse(ARCHIVE, str(fault))
    except (CannotListen, LoadFault) as fault:
        return refuse(ENGINE, str(fault))
    except OSError as fault:
        path = fault.filename or settings.model_dir
        return refuse(ARCHIVE, f"Refused: {path} cannot be read ({fault.strerror}).")


def _print_line(sentence: str) -> None:
    with suppress(OSError):  # stdout is closed, which does not stop the server
        print(sentence, flush=True)


def _serve(settings: Settings, listener: socket.socket, open_engine: OpenEngine) -> int:
    archive = verify_archive(
        settings.model_dir,
        running=running(),
        manifest_sha256=settings.manifest_sha256,
        signers=settings.signers,
    )
    try:
        model = servable_model(archive, settings, lambda: open_engine(archive, settings))
    except Exception as fault:
        raise tokenizer_fault(archive.tokenizer, fault) from fault
    log = FailureLog(stderr, model=model.name)
    try:
        return _run(serve_model(settings, model, listener, log), log)
    except LoadFault as fault:
        raise LoadFault(
            f"The engine {archive.manifest.engine_file} cannot be loaded: {fault}"
        ) from fault


def tokenizer_fault(path: Path | None, fault: Exception) -> LoadFault:
    """Return why a model's tokenizer cannot be loaded: it is broken, or memory is lacking."""
    reason, way_out = first_line(fault), "build the engine again"
    if is_memory_shortage(fault):
        reason = f"it does not fit the memory that is left: {reason}"
        way_out = "choose an instance type with more memory"
    return LoadFault(f"The tokenizer {path} cannot be loaded ({reason}); {way_out}.")


def _run(serving: Coroutine[Any, Any, None], log: FailureLog) -> int:
    """Run a server on an event loop until it has drained; return the exit code 0."""
    try:
        uvloop.run(without_executor_wait(serving))
    except StoppedWhileLoading:
        _print_line("Stopped while the engine was loading.")
    finally:
        ignore_stop_signals()
        log.close()
    return 0


def model_application(
    plane: DataPlane, settings: Settings, metrics: ServerMetrics, log: FailureLog
) -> Application:
    """Return the HTTP application of one model."""

    async def ready(request: Request, stages: Stages) -> Response:
        if not plane.ready:
            raise Unavailable(NOT_READY)
        return EMPTY

    async def metrics_text(request: Request, stages: Stages) -> Response:
        return Response(200, metrics.exposition(), CONTENT_TYPE)

    inference = partial(infer, plane, deadline_seconds=settings.deadline_seconds)
    routes = {
        "/ping": Route(kind=HEALTH, methods={"GET": ready}),
        "/invocations": Route(kind="infer", methods={"POST": inference}),
        "/metrics": Route(kind="metrics", methods={"GET": metrics_text}),
    }
    model = plane.signature.model
    elsewhere = f"GET /ping and POST /invocations are, with model {model!r}."
    return dispatch_by_path(routes.get, elsewhere=elsewhere, log=log, over=metrics.record_request)


async def serve_model(
    settings: Settings, model: Model, listener: socket.socket, log: FailureLog
) -> None:
    """Serve one model until a signal drains it; /ping is 503 while it loads.

    Raises LoadFault and StoppedWhileLoading.
    """
    tune_interpreter()
    metrics, stop, more = ServerMetrics(model.name, log=log), stop_event(), {}
    if model.encoder is not None:
        more["truncated"] = metrics.count_truncated()
    plane = DataPlane(
        signature=model.signature,
        encoder=model.encoder,
        max_request_rows=settings.max_request_rows,
        **more,
    )
    application = model_application(plane, settings, metrics, log)
    server = HttpServer(application, limits=HttpLimits.of(settings))
    metrics.connections.set_function(lambda: server.connections)
    metrics.models_loaded.set_function(lambda: int(plane.ready))
    await server.start(listener)
    try:
        batcher = await load_unless_stopped(load_batcher(model, settings, metrics), stop)
    except BaseException as fault:
        plane.drain()
        await server.drain(settings.drain_seconds if isinstance(fault, StoppedWhileLoading) else 0)
        raise
    plane.open(batcher)
    _print_line(f"Serving {model.name} on {bind_address(settings)}.")
    await stop.wait()
    plane.drain()
    await server.drain(settings.drain_seconds)
    batcher.close()


CODECS: Mapping[Form, Any] = {
    "texts": texts,
    "tensors": tensors,
    "heads": heads,
    "images": images,
}


async def infer(
    plane: DataPlane, request: Request, stages: Stages, *, deadline_seconds: float
) -> Response:
    """Return the answer of one request; `stages` gets the seconds of each stage that ends.

    Raises RequestFault.
    """
    signature = plane.signature
    codec = CODECS[signature.form]
    begun = perf_counter()
    deadline = monotonic() + deadline_seconds
    refuse_encoding(request)
    kind = content_type(request)
    inference = codec.decode_request(request.body, kind, signature)
    if inference.timeout_seconds is not None:
        deadline += min(0.0, inference.timeout_seconds - deadline_seconds)
    decoded = perf_counter()
    stages["decode"] = decoded - begun
    encoded, alone = plane.encode_short(inference.rows), request.is_alone
    if encoded is None:
        encoded, alone = await plane.encode_beside(inference.rows, deadline), False
    tokenized = perf_counter()
    stages["tokenize"] = tokenized - decoded
    arrays = await plane.submit(encoded, deadline=deadline, alone=alone)
    ran = perf_counter()
    stages["wait"] = ran - tokenized
    body, media_type = codec.encode_response(arrays, inference, signature)
    stages["encode"] = perf_counter() - ran
    return Response(200, body, media_type)
