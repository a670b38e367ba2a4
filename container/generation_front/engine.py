"""The engine's HTTP port, which only this process asks."""

from __future__ import annotations

import asyncio
from io import BytesIO
from typing import NamedTuple

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector
from yarl import URL

from container.generation_front.requests import JSON_TYPE
from container.server.types import DeadlinePassed, Unavailable

IDLE_SECONDS = 2.0
"""Connections are kept shorter than uvicorn keeps them, so none is closed while it is reused."""
MOST_AT_ONCE = 1 << 20
NO_RESPONSE = "The engine does not answer; it is starting, or being started again."


class EngineGone(Unavailable):
    """The engine does not listen, or ended its connection before it answered."""


class Answer(NamedTuple):
    """A whole answer of the engine."""

    status: int
    body: bytes
    content_type: str


class Engine:
    """Sends requests to the engine; used on one event loop, which it must be made on."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self._base = URL(f"http://{host}:{port}")
        self._session = ClientSession(
            connector=TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            timeout=ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            skip_auto_headers=("Accept-Encoding", "User-Agent"),
        )

    async def begin(self, path: str, body: bytes, method: str = "POST") -> ClientResponse:
        """Return an answer whose body is still to come, to be released by its reader.

        An answer that is released before its end closes the connection, by which the engine drops
        the request. Raises EngineGone.
        """
        headers = {"Content-Type": JSON_TYPE} if body else {}
        # Beyond that aiohttp writes bytes in one piece, and nothing else goes on meanwhile.
        data = BytesIO(body) if len(body) > MOST_AT_ONCE else body
        try:
            return await self._session.request(
                method, self._base.with_path(path), data=data if body else None, headers=headers
            )
        except ClientError as fault:
            raise EngineGone(NO_RESPONSE) from fault

    async def request(
        self, method: str, path: str, body: bytes = b"", seconds: float | None = None
    ) -> Answer:
        """Return a whole answer, whatever its status. Raises EngineGone and DeadlinePassed."""
        try:
            async with asyncio.timeout(seconds):
                answer = await self.begin(path, body, method)
                try:
                    return await read_whole(answer)
                finally:
                    answer.release()
        except TimeoutError as fault:
            raise DeadlinePassed(
                f"The engine did not answer within {seconds:g} seconds."
            ) from fault

    async def close(self) -> None:
        """Close every connection."""
        await self._session.close()


async def read_whole(answer: ClientResponse) -> Answer:
    """Return an answer with its body. Raises EngineGone where the engine ends before it does."""
    try:
        body = await answer.read()
    except ClientError as fault:
        raise EngineGone("The engine ended before its answer did; try again.") from fault
    return Answer(answer.status, body, answer.headers.get("Content-Type", JSON_TYPE))
