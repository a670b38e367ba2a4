"""An engine that speaks vLLM's paths: each prompt is JSON that says how it is answered.

`events` of text and of `size` bytes more, `pause` seconds before each, then `end`: done, error (an
error event, then [DONE], as vLLM says it), close (the connection), hang. `status` answers that
instead. `begin`: seconds before all of it. As a program it listens on SM_VLLM_PORT.
"""

from __future__ import annotations

import asyncio
import json
import os

from aiohttp import web


class EngineProgram:
    """Counts what it is requests, and what it is still answering."""

    def __init__(self, ping=200):
        self.ping, self.requests, self.running, self.left, self.sent = ping, [], 0, 0, 0
        self.app = web.Application(client_max_size=1 << 26)
        self.app.router.add_get("/ping", self.health)
        self.app.router.add_get("/metrics", self.metrics)
        self.app.router.add_get("/v1/models", self.models)
        self.app.router.add_post("/adapters", self.load)
        self.app.router.add_delete("/adapters/{name}", self.unload)
        self.app.router.add_post("/v1/chat/completions", self.generate)
        self.app.router.add_post("/v1/completions", self.generate)
        self.adapters, self.loading = [], 0

    async def metrics(self, request):
        return web.Response(text="vllm:num_requests_running 0\n")

    async def health(self, request):
        return web.Response(status=self.ping)

    async def models(self, request):
        rows = [{"id": name} for name in ("chat", *self.adapters)]
        return web.json_response({"data": rows})

    async def load(self, request):
        document = await request.json()
        self.loading += 1
        await asyncio.sleep(document.get("pause", 0))
        self.adapters.append(document["name"])
        return web.Response(text="loaded")

    async def unload(self, request):
        self.adapters.remove(request.match_info["name"])
        return web.Response(text="unloaded")

    async def generate(self, request):
        document = await request.json()
        self.requests.append((request.path, document, dict(request.headers)))
        self.running += 1
        try:
            return await self.answer(request, document)
        except (asyncio.CancelledError, ConnectionError):
            self.left += 1
            raise
        finally:
            self.running -= 1

    async def answer(self, request, document):
        order = _order(document)
        await asyncio.sleep(order.get("begin", 0))
        if "status" in order:
            error = {"error": {"message": "no", "type": "X", "param": None, "code": 0}}
            return web.json_response(error, status=order["status"])
        if not document.get("stream"):
            await asyncio.sleep(order.get("pause", 0))
            text = "all" + "." * order.get("size", 0)
            return web.json_response({"choices": [{"text": text}], "model": document["model"]})
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for number in range(order.get("events", 3)):
            await asyncio.sleep(order.get("pause", 0))
            text = f"{number}é " + "." * order.get("size", 0)
            event = {"choices": [{"index": 0, "text": text}]}
            await response.write(f"data: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
            self.sent += 1
        end = order.get("end", "done")
        if end == "hang":
            await asyncio.sleep(60)
        if end == "close":
            await response.write(b'data: {"choices": [{"te')
            request.transport.close()
            return response
        if end == "error":
            await response.write(b'data: {"error": {"message": "engine died", "code": 500}}\n\n')
        await response.write(b"data: [DONE]\n\n")
        return response


def _order(document):
    words = document.get("prompt")
    if words is None:
        words = document["messages"][0]["content"]
    return json.loads(words) if isinstance(words, str) and words.startswith("{") else {}


if __name__ == "__main__":
    web.run_app(
        EngineProgram().app,
        host=os.environ["SM_VLLM_HOST"],
        port=int(os.environ["SM_VLLM_PORT"]),
        handler_cancellation=True,
        print=None,
        access_log=None,
    )
