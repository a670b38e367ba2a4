"""Bodies of JSON lines before Triton: each line is a request of its own, answered by a line.

As in the Python server a few lines are under way at a time and the answer is gathered beside
memory, so what a body takes does not grow with it, and a body with a fault is refused whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic

from container.server.codecs.envelope import read_document
from container.server.http.json_lines import LinesUnderWay
from container.server.triton.health import BUSY
from container.server.triton.kserve_request import NO_TABLES, Tables, checked_request
from container.server.types import JSON_TYPE, DeadlinePassed, RequestFault, Response
from container.server.upstream import mark_seen

LINES_AT_ONCE, BYTES_AT_ONCE = 64, 4 << 20
"""So many lines are under way, or one that is larger: Triton and this server hold each."""
PAUSE_SECONDS = 0.05
"""Before a line is sent again that a full queue of Triton refused."""
FULL_QUEUE = b"maximum queue size"
"""Of Triton's sentence; several models answer it with 400."""

Ask = Callable[[bytes, str, float], Awaitable[Response]]
"""Send body and content type to Triton, and wait so many seconds at most."""
Line = tuple[bytes, str]
"""Body and content type of a request to Triton."""


class TritonLines(LinesUnderWay):
    """Lines that are requests to Triton, which finishes what it has of them.

    A refusal of Triton's has its status.
    """

    def __init__(self, ask: Ask, seconds: float, tables: Tables = NO_TABLES) -> None:
        """`seconds`: for all lines."""
        super().__init__(BYTES_AT_ONCE)
        self._ask, self._deadline, self._tables = ask, monotonic() + seconds, tables

    def _read(self, line: bytes) -> tuple[Line, int]:
        request = checked_request(line, JSON_TYPE, self._tables)
        return request, max(len(request[0]), BYTES_AT_ONCE // LINES_AT_ONCE)

    async def _submit(self, request: Line) -> asyncio.Future[Response]:
        left = self._deadline - monotonic()
        if left <= 0:
            raise DeadlinePassed("The lines were not all answered in time; send fewer of them.")
        answer = asyncio.ensure_future(self._ask(*request, left))
        answer.add_done_callback(mark_seen)
        return answer

    async def _encode(self, request: Line, answer: Response) -> tuple[bytes, str]:
        while _is_full_queue(answer):
            await asyncio.sleep(PAUSE_SECONDS)
            answer = await (await self._submit(request))
        if answer.status != 200:
            fault = RequestFault(_sentence(answer))
            fault.status = answer.status
            raise fault
        # Outside of strings, which escape them, line ends are spaces.
        return answer.body.replace(b"\n", b" "), answer.content_type


def _is_full_queue(answer: Response) -> bool:
    return answer.status in (*BUSY, 400) and FULL_QUEUE in answer.body


def _sentence(answer: Response) -> str:
    """Return the sentence of Triton's refusal."""
    try:
        error = read_document(answer.body).get("error")
    except RequestFault:
        error = None
    return error if isinstance(error, str) else f"Triton answered {answer.status}."
