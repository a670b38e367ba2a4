"""HTTP to the data plane and back, as one raw ASGI application: unpack, delegate, pack."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any

from container.server import codecs, tensors
from container.server.data_plane import DataPlane
from container.server.envelope import BINARY_TYPE, JSON_TYPE, encoded_fault
from container.server.types import (
    RequestFault,
    TensorSignature,
    TooLarge,
    Unavailable,
    UnknownPath,
    UnsupportedEncoding,
    WrongMethod,
)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


class ClientGone(Exception):
    """The client left before its answer."""


def application(plane: DataPlane, *, max_body_bytes: int) -> Application:
    """The ASGI application of one served model."""
    signature: Any = plane.signature
    model = signature.model
    codec: Any = tensors if isinstance(signature, TensorSignature) else codecs
    infer_paths = ("/invocations", f"/v2/models/{model}/infer", f"/v2/models/{model}/versions/{signature.version}/infer")
    ready_paths = ("/ping", "/v2/health/ready", f"/v2/models/{model}/ready")

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        try:
            await route(scope, receive, send)
        except RequestFault as fault:
            await _send_fault(send, fault)
        except ClientGone:
            return

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path in infer_paths:
            _only(scope, "POST")
            await infer(scope, receive, send)
        elif path in ready_paths:
            _only(scope, "GET")
            await ready(send)
        elif path == "/v2/health/live":
            await _send(send, 200, b"", JSON_TYPE)
        else:
            raise UnknownPath(f"There is no {path[:60]!r} here; GET /ping and POST /invocations are, with model {model!r}.")

    async def ready(send: Send) -> None:
        if not plane.ready:
            raise Unavailable("The server is not ready: it is loading, draining or its engine fails.")
        await _send(send, 200, b"", JSON_TYPE)

    async def infer(scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        body = _plain(await _body(receive, max_body_bytes), headers.get(b"content-encoding", "identity"), max_body_bytes)
        request = codec.decoded(body, _content_type(headers), signature)
        rows = await _unless_gone(await plane.submit(request.rows), receive)
        answer, content_type = codec.encoded(rows, request, signature)
        await _send(send, 200, answer, content_type)

    return serve


def _only(scope: Scope, method: str) -> None:
    if scope["method"] != method:
        raise WrongMethod(f"{scope['path']} takes {method}, not {scope['method'][:20]}.")


def _content_type(headers: dict[bytes, str]) -> str:
    """The content type; KServe's own header length header counts as the binary one."""
    length = headers.get(b"inference-header-content-length")
    return headers.get(b"content-type", "") if length is None else f"{BINARY_TYPE};json-header-size={length}"


async def _body(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLarge(f"The request has more than {limit} bytes.")
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _plain(body: bytes, encoding: str, limit: int) -> bytes:
    """The body without its content encoding, never larger than `limit`."""
    if encoding.strip().lower() in ("", "identity"):
        return body
    if encoding.strip().lower() not in ("gzip", "deflate"):
        raise UnsupportedEncoding(f"Content-Encoding is {encoding[:40]!r}; gzip, deflate and identity are read.")
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 32)
    try:
        plain = stream.decompress(body, limit + 1)
    except zlib.error as fault:
        raise RequestFault(f"The body is not {encoding.strip().lower()}: {fault}.") from fault
    if len(plain) > limit:
        raise TooLarge(f"The request has more than {limit} bytes once unpacked.")
    if not stream.eof:
        raise RequestFault(f"The {encoding.strip().lower()} body ends too early.")
    return plain


async def _unless_gone(answer: asyncio.Future[Any], receive: Receive) -> Any:
    """The answer, unless the client leaves first: then its work stops."""
    watch = asyncio.ensure_future(receive())
    watch.add_done_callback(lambda _: answer.cancel())
    try:
        return await answer
    except asyncio.CancelledError:
        if watch.done() and not watch.cancelled():
            raise ClientGone from None
        raise
    finally:
        answer.cancel()
        watch.cancel()


async def _send_fault(send: Send, fault: RequestFault) -> None:
    extra = [] if fault.retry_after_seconds is None else [(b"retry-after", str(fault.retry_after_seconds).encode())]
    if isinstance(fault, TooLarge):
        extra.append((b"connection", b"close"))
    await _send(send, fault.status, encoded_fault(str(fault)), JSON_TYPE, extra)


async def _send(send: Send, status: int, body: bytes, content_type: str, extra: Sequence[tuple[bytes, bytes]] = ()) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode()), *extra]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
