"""MiniStack with the services of this package hung in, served on 127.0.0.1 until told to end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import signal
import sys
import threading
import types
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import ministack.core.router as router
from ministack.core.responses import StreamingResponse

from local_cloud.address import write_own_address
from local_cloud.protocol.errors import Reply, dispatch
from local_cloud.settings import Settings

PATTERNS: dict[str, dict[str, list[str]]] = {
    "sagemaker": {"target_prefixes": ["SageMaker"], "host_patterns": [r"sagemaker"]},
    "application-autoscaling": {
        "target_prefixes": ["AnyScaleFrontendService"],
        "host_patterns": [r"application-autoscaling\."],
    },
    "servicequotas": {
        "target_prefixes": ["ServiceQuotasV20190624"],
        "host_patterns": [r"servicequotas\."],
    },
}
INVOCATION_THREADS = 64
Answer = Callable[[str, bytes], Reply]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Invoke = Callable[[str, Mapping[str, str], bytes], Any]
"""Returns a reply, or one that is streamed."""


def serve(settings: Settings) -> None:
    """Serve the local cloud until SIGTERM or SIGINT, then stop every child."""
    known = dict(router.SERVICE_PATTERNS)
    router.SERVICE_PATTERNS.clear()
    router.SERVICE_PATTERNS.update({**PATTERNS, **known})
    asyncio.run(_serve(settings))


def _install(emulator: Any, settings: Settings) -> Callable[[], None]:
    """Add the services of this package to MiniStack; return the function that stops them."""
    from local_cloud import cloudformation, step_functions
    from local_cloud.account import correct_copies
    from local_cloud.application_autoscaling.api import Scaling
    from local_cloud.application_autoscaling.autoscaler import Autoscaler
    from local_cloud.application_autoscaling.registry import Registry
    from local_cloud.clock import Clock
    from local_cloud.cloudwatch.alarms import alarm_states
    from local_cloud.codebuild import Builds
    from local_cloud.containers.job import stop_jobs
    from local_cloud.iam import authorization, web_identity
    from local_cloud.sagemaker.components.api import ComponentActions
    from local_cloud.sagemaker.components.components import Components
    from local_cloud.sagemaker.control_plane import ControlPlane
    from local_cloud.sagemaker.hosting.endpoints import Endpoints
    from local_cloud.sagemaker.runtime.api import Runtime
    from local_cloud.sagemaker.training.training_jobs import TrainingJobs

    endpoints, builds, registry = Endpoints(settings, alarm_states), Builds(settings), Registry()
    components = Components(endpoints, alarm_states)
    stretch = settings.seconds_per_minute / 60
    autoscaler = Autoscaler(registry, components, alarm_states, stretch)
    scaling, runtime = Scaling(registry, autoscaler), Runtime(components)
    control_plane = ControlPlane(endpoints, registry.variants)
    control_plane.add(ComponentActions(components).actions)
    control_plane.hosted_components = components.names_of
    clock = Clock(settings, components, scaling)
    jobs = TrainingJobs(settings)
    control_plane.add(jobs.actions)
    cloudformation.install(control_plane, components, scaling)
    builds.install()
    step_functions.install()
    authorization.install(emulator)
    correct_copies()
    web_identity.install()
    clock.start()
    threads = ThreadPoolExecutor(INVOCATION_THREADS, thread_name_prefix="invocation")
    _add_service(emulator, "sagemaker", _handler(control_plane.answer, runtime.answer, threads))
    _add_service(emulator, "application-autoscaling", _handler(scaling.answer))
    _add_service(emulator, "servicequotas", _handler(_quotas))

    def stop() -> None:
        clock.stop()
        stop_jobs([*builds.runs.values(), *jobs.all_runs])
        components.stop_all()
        endpoints.stop_all()

    return stop


async def _serve(settings: Settings) -> None:
    import ministack.app as emulator
    from hypercorn.asyncio import serve as hypercorn_serve
    from hypercorn.config import Config

    stop = _install(emulator, settings)
    ending = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ending.set)
    config, listener = Config(), settings.listener
    config.bind = [f"127.0.0.1:{settings.port}" if listener is None else f"fd://{listener}"]
    config.keep_alive_timeout = 75
    config.graceful_timeout = 0.5
    config.loglevel = "WARNING"
    announcing = asyncio.create_task(_announce(settings))

    async def wait_for_end() -> None:
        await ending.wait()
        await asyncio.to_thread(stop)

    await hypercorn_serve(emulator.app, config, shutdown_trigger=wait_for_end)
    announcing.cancel()


async def _announce(settings: Settings) -> None:
    """Writes the address once the cloud answers on it."""
    while not await _answers(settings.port):
        await asyncio.sleep(0.02)
    write_own_address(settings.state, settings.port, settings.seconds_per_minute)


async def _answers(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /_ministack/health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        status = await reader.readline()
        writer.close()
    except OSError:
        return False
    return b" 200 " in status


def _quotas(target: str, body: bytes) -> Reply:
    """Answer a request of Service Quotas: the local cloud has none, so that it names none."""
    names = ("ListServiceQuotas", "ListAWSDefaultServiceQuotas")
    return dispatch("ServiceQuotas", dict.fromkeys(names, lambda _: {"Quotas": []}), target, body)


def _add_service(emulator: Any, name: str, handler: Any) -> None:
    """Registers a handler, and the module that MiniStack's reset expects behind each service."""
    module_name = f"roundhouse_{name.replace('-', '_')}"
    module = types.ModuleType(f"ministack.services.{module_name}")
    module.reset = lambda: None  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    emulator.SERVICE_HANDLERS[name] = handler
    emulator.SERVICE_REGISTRY[name] = {"module": module_name}


def _handler(
    answer: Answer, invoke: Invoke | None = None, threads: ThreadPoolExecutor | None = None
) -> Any:
    """A handler of both APIs: SageMaker Runtime signs as SageMaker does, and differs by path."""

    async def handler(
        method: str, path: str, headers: dict[str, str], body: bytes, query: dict[str, list[str]]
    ) -> Any:
        if invoke is None or not path.startswith("/endpoints/"):
            return answer(headers.get("x-amz-target", ""), body)
        run = partial(contextvars.copy_context().run, invoke, path, headers, body)
        reply = await asyncio.get_running_loop().run_in_executor(threads, run)
        if isinstance(reply, tuple):
            return reply
        return reply.status, reply.headers, streaming_response(reply.parts, reply.close)

    return handler


def streaming_response(parts: Iterator[bytes], close: Callable[[], None]) -> Any:
    """Return MiniStack's marker of a body whose parts are read in a thread of their own.

    `close` ends the reading from any thread: once the caller has left, and at last in any case.
    """

    async def send_parts(send: Send, receive: Receive) -> None:
        loop, queue = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def put(item: bytes | None) -> None:
            with contextlib.suppress(RuntimeError):  # The loop has ended with the cloud.
                loop.call_soon_threadsafe(queue.put_nowait, item)

        def read() -> None:
            try:
                for part in parts:
                    put(part)
            finally:
                close()
                put(None)

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            close()
            queue.put_nowait(None)

        context = contextvars.copy_context()
        threading.Thread(target=context.run, args=(read,), name="stream", daemon=True).start()
        watching = asyncio.ensure_future(watch())
        try:
            while (part := await queue.get()) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            watching.cancel()

    return StreamingResponse(send_parts)


logging.getLogger("roundhouse").setLevel(logging.INFO)
