"""A front in this process before an engine in this process, both on real sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

from aiohttp import ClientSession, web

from container.server.http.server import HttpServer
from container.server.settings import Settings
from container.server.upstream import Upstream
from container.server.vllm.app import limits_of
from container.server.vllm.events import error_body
from container.server.vllm.routes import Routes
from container.server.vllm.settings import EngineSettings
from tests.unit.vllm_server.engine_program import EngineProgram


class Log(list):
    """The types of the faults of ours that the failure log gets."""

    def report(self, event, fault=None, **facts):
        if fault is not None:
            self.append(type(fault))


@dataclass
class Front:
    routes: Routes
    program: EngineProgram
    session: ClientSession
    server: HttpServer
    port: int
    log: Log

    async def ask(self, path, document=None, *, method="POST", headers=None, data=None):
        """Status, body and headers of an answer."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        body = json.dumps(document).encode() if data is None and document is not None else data
        async with self.session.request(method, path, data=body, headers=sent) as answer:
            return answer.status, await answer.read(), answer.headers

    async def metric(self, name):
        """The value of one of the front's own metrics."""
        _, body, _ = await self.ask("/metrics", method="GET")
        (line,) = (line for line in body.decode().splitlines() if line.startswith(f"{name} "))
        return float(line.rpartition(" ")[2])

    async def stream(self, order, **more):
        """All bytes of a streamed completion."""
        status, body, _ = await self.ask("/invocations", completion(order, stream=True, **more))
        assert status == 200
        return body.decode()


def completion(order=None, **more):
    return {"prompt": json.dumps(order or {}), "max_tokens": 5, **more}


@asynccontextmanager
async def running_front(settings=None, http_limits=None, **limits):
    """A warm front; `limits` are EngineSettings', `http_limits` HttpLimits'."""
    async with AsyncExitStack() as stack:
        program = EngineProgram()
        runner = web.AppRunner(program.app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        engine = Upstream(runner.addresses[0][1], "The engine")
        stack.callback(engine.close)
        log = Log()
        values = {"model": "chat", "max_model_len": 64, "most_sequences": 8, **limits}
        settings = settings or Settings()
        routes = Routes(engine, settings, EngineSettings(**values), log)
        routes.not_ready = ""
        server = HttpServer(
            routes,
            limits=replace(limits_of(settings), **(http_limits or {})),
            error_body=error_body,
            memory_full=routes.metrics.full_memory.inc,
        )
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        await server.start(listener)
        stack.push_async_callback(server.drain, 0.1)
        session = await stack.enter_async_context(ClientSession(f"http://127.0.0.1:{port}"))
        yield Front(routes, program, session, server, port, log)
        assert log == []


def run(play, **limits):
    """Play with a front; `limits` are those of `running_front`."""

    async def inner():
        async with running_front(**limits) as front:
            return await play(front)

    return asyncio.run(inner())


async def until(condition, seconds=5):
    """Wait for a condition of this process."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
