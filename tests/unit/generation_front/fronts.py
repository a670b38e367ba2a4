"""A front in this process before an engine in this process, both on real sockets."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import ClientSession, web

from container.generation_front.engine import Engine
from container.generation_front.routes import Routes
from container.generation_front.settings import EngineSettings
from container.server.settings import Settings
from tests.unit.generation_front.engine_program import EngineProgram


@dataclass
class Front:
    routes: Routes
    program: EngineProgram
    session: ClientSession
    faults: list = field(default_factory=list)

    async def ask(self, path, document=None, *, method="POST", headers=None, data=None):
        """Status, body and headers of an answer."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        body = json.dumps(document).encode() if data is None and document is not None else data
        async with self.session.request(method, path, data=body, headers=sent) as answer:
            return answer.status, await answer.read(), answer.headers

    async def stream(self, order, **more):
        """All bytes of a streamed completion."""
        status, body, _ = await self.ask("/invocations", completion(order, stream=True, **more))
        assert status == 200
        return body.decode()


def completion(order=None, **more):
    return {"prompt": json.dumps(order or {}), "max_tokens": 5, **more}


async def listen(stack, server):
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    return runner.addresses[0][1]


@asynccontextmanager
async def running_front(settings=None, **limits):
    """A warm front; `limits` are EngineSettings'."""
    async with AsyncExitStack() as stack:
        program = EngineProgram()
        runner = web.AppRunner(program.app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        engine = Engine(runner.addresses[0][1])
        stack.push_async_callback(engine.close)
        faults = []
        values = {"models": ("chat",), "max_model_len": 64, "most_sequences": 8, **limits}
        routes = Routes(engine, settings or Settings(), EngineSettings(**values), faults.append)
        routes.not_ready = ""
        options = {"handler_cancellation": True, "access_log": None, "auto_decompress": False}
        port = await listen(stack, web.Server(routes, **options))
        session = await stack.enter_async_context(ClientSession(f"http://127.0.0.1:{port}"))
        yield Front(routes, program, session, faults)
        assert faults == []


async def until(condition, seconds=5):
    """Wait for a condition of this process."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
