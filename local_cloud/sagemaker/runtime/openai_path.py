"""The OpenAI path of every endpoint: chat completions with a bearer token instead of a signature.

MiniStack finds the service of a request by its signature, so these requests are answered before
they reach it. How SageMaker words its own refusals on this path is not published; here they have
OpenAI's shape.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from local_cloud.iam.bearer_tokens import enter_account, read_token
from local_cloud.ministack.streaming import send_parts
from local_cloud.protocol.errors import AwsError, Reply
from local_cloud.sagemaker.runtime.api import Runtime
from local_cloud.sagemaker.runtime.streams import StreamedReply

PATH = re.compile(
    r"/endpoints/(?P<name>[^/]+)(/inference-components/(?P<component>[^/]+))?/openai(?P<route>/.*)"
)
ROUTE = "/v1/chat/completions"
Message = dict[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class OpenAiPath:
    """An ASGI application in front of MiniStack's."""

    def __init__(self, app: App, runtime: Runtime, threads: Executor) -> None:
        self._app, self._runtime, self._threads = app, runtime, threads

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request of the OpenAI path, or pass it on."""
        match = PATH.fullmatch(scope["path"]) if scope["type"] == "http" else None
        if match is None:
            await self._app(scope, receive, send)
            return
        headers = {name.decode().lower(): value.decode() for name, value in scope["headers"]}
        body = await _read_body(receive)
        try:
            reply = await self._reply(scope["method"], match, headers, body)
        except AwsError as error:
            reply = _error_reply(error)
        await _send_reply(reply, receive, send)

    async def _reply(
        self, method: str, match: re.Match[str], headers: Mapping[str, str], body: bytes
    ) -> Reply | StreamedReply:
        if method != "POST" or match["route"] != ROUTE:
            message = f"The OpenAI path answers POST {ROUTE}, not {method} {match['route']}."
            raise AwsError("ResourceNotFoundException", message, 404)
        token = read_token(headers.get("authorization", ""), time.time())
        enter_account(token)
        run = contextvars.copy_context().run
        return await asyncio.get_running_loop().run_in_executor(
            self._threads,
            lambda: run(
                self._runtime.answer_openai, match["name"], match["component"], headers, body
            ),
        )


async def _read_body(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if not message.get("more_body"):
            return body


def _error_reply(error: AwsError) -> Reply:
    content = {"message": error.message, "type": error.code, "param": None, "code": error.status}
    return (
        error.status,
        {"content-type": "application/json"},
        json.dumps({"error": content}).encode(),
    )


async def _send_reply(reply: Reply | StreamedReply, receive: Receive, send: Send) -> None:
    if isinstance(reply, StreamedReply):
        status, headers = reply.status, reply.headers
    else:
        status, headers, _ = reply
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    if isinstance(reply, StreamedReply):
        await send_parts(reply.parts, reply.close, send, receive)
    else:
        await send({"type": "http.response.body", "body": reply[2], "more_body": False})
