"""Starts the Python server: `python -m container.server [serve]`.

Exit codes: 0 drained and stopped; 2 a setting is wrong; 3 the archive is refused; 4 the engine or the port cannot be used.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import uvicorn
import uvloop

from container.archive import ArchiveRefused, EngineArchive, verified_archive
from container.server.batcher import Limits
from container.server.data_plane import DataPlane
from container.server.runtime import (
    COMPUTE_CAPABILITY,
    Engine,
    OnnxEngine,
    TensorEncoder,
    TensorEngine,
    TextEncoder,
    longest_sequence,
    running_runtime,
    warm_up_sizes,
)
from container.server.settings import Settings, SettingsFault, available_cores, process_settings
from container.server.transport import application
from container.server.types import Signature, TensorSignature
from onboarding.manifest import Manifest

SETTING, ARCHIVE, ENGINE = 2, 3, 4
UNBOUNDED_SEQUENCE = 512


def main(arguments: list[str]) -> int:
    """The exit code of the whole server."""
    if arguments not in ([], ["serve"]):
        return _refused(
            SETTING, f"Unknown arguments {arguments}; use `serve` or none, and set the server by environment variables."
        )
    try:
        settings = process_settings()
        archive = verified_archive(
            settings.model_dir,
            runtime=running_runtime(),
            compute_capability=COMPUTE_CAPABILITY,
            manifest_sha256=settings.manifest_sha256,
        )
        listener = _listener(settings)
    except SettingsFault as fault:
        return _refused(SETTING, str(fault))
    except ArchiveRefused as fault:
        return _refused(ARCHIVE, str(fault))
    except OSError as fault:
        return _refused(
            ENGINE, f"Cannot listen on {_place(settings)} ({fault.strerror}); set SAGEMAKER_BIND_TO_PORT to a free port."
        )
    exit_code: int = uvloop.run(_serve(settings, archive, listener))
    return exit_code


def _stop_on_signals(server: uvicorn.Server) -> None:
    """A signal drains the server whenever it comes: uvicorn listens only while it serves, and repeats the signal afterwards."""

    def stop(number: int, frame: FrameType | None) -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


def _place(settings: Settings) -> str:
    return f"{settings.address}:{settings.port}"


def _listener(settings: Settings) -> socket.socket:
    """The listening socket, bound before anything is loaded so that a taken port is told at once."""
    family = socket.AF_INET6 if ":" in settings.address else socket.AF_INET
    return socket.create_server((settings.address, settings.port), family=family, backlog=2048)


async def _serve(settings: Settings, archive: EngineArchive, listener: socket.socket) -> int:
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="engine") as thread:
        try:
            plane = _plane(settings, archive, thread)
        except Exception as fault:
            return _refused(ENGINE, f"The tokenizer cannot be loaded: {fault}")
        server = uvicorn.Server(_uvicorn_config(settings, plane))
        plane.drain_when(lambda: bool(server.should_exit))
        _stop_on_signals(server)
        loading = asyncio.ensure_future(_load(settings, archive, plane, server, thread))
        await server.serve(sockets=[listener])
        return await loading


def _plane(settings: Settings, archive: EngineArchive, thread: ThreadPoolExecutor) -> DataPlane:
    manifest = archive.manifest
    signature, encoder, cost = _tensors(manifest) if archive.tokenizer is None else _texts(manifest, archive.tokenizer, settings)
    return DataPlane(
        signature=signature,
        encoder=encoder,
        limits=Limits(max_rows=manifest.max_batch_size, max_tokens=cost, queue_rows=settings.queue_rows),
        max_request_rows=settings.max_request_rows,
        thread=thread,
    )


def _texts(manifest: Manifest, tokenizer: Path, settings: Settings) -> tuple[Signature, TextEncoder, int]:
    """How texts are read, and the most tokens of a batch."""
    longest = longest_sequence(manifest.optimization_profiles)
    tokens = manifest.max_batch_size * (UNBOUNDED_SEQUENCE if longest is None else longest)
    signature = Signature(model=manifest.model, input_name=manifest.inputs[0].name, output_name=manifest.outputs[0].name)
    most = tokens if settings.max_batch_tokens is None else settings.max_batch_tokens
    return signature, TextEncoder(tokenizer, max_tokens=longest), most


def _tensors(manifest: Manifest) -> tuple[TensorSignature, TensorEncoder, int]:
    """How tensors are read; each of a row's arrays counts as one."""
    signature = TensorSignature(model=manifest.model, inputs=manifest.inputs, outputs=manifest.outputs)
    return signature, TensorEncoder(manifest.inputs), manifest.max_batch_size * len(manifest.inputs)


def _engine(archive: EngineArchive, threads: int) -> Engine:
    manifest = archive.manifest
    if archive.tokenizer is not None:
        return OnnxEngine(archive.engine, threads=threads)
    return TensorEngine(archive.engine, threads=threads, inputs=manifest.inputs, outputs=manifest.outputs)


def _uvicorn_config(settings: Settings, plane: DataPlane) -> uvicorn.Config:
    return uvicorn.Config(
        application(plane, max_body_bytes=settings.max_body_bytes),
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=settings.drain_seconds,
    )


async def _load(
    settings: Settings, archive: EngineArchive, plane: DataPlane, server: uvicorn.Server, thread: ThreadPoolExecutor
) -> int:
    """Loads and warms the engine while /ping already answers 503; stops the server when that fails."""

    def loaded() -> Engine:
        engine = _engine(archive, available_cores() if settings.threads is None else settings.threads)
        for batch, sequence in warm_up_sizes(archive.manifest):
            engine.warm(batch, sequence)
        return engine

    try:
        plane.open(await asyncio.get_running_loop().run_in_executor(thread, loaded))
    except Exception as fault:
        server.should_exit = True
        reason = (str(fault).splitlines() or [type(fault).__name__])[0]
        return _refused(ENGINE, f"The engine {archive.manifest.engine_file} cannot be loaded: {reason}")
    print(f"Serving {archive.manifest.model}, engine {archive.manifest.engine_key}, on {_place(settings)}.", flush=True)
    return 0


def _refused(code: int, sentence: str) -> int:
    print(sentence, file=sys.stderr, flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
