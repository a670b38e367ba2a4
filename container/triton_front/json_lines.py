"""Bodies of JSON lines before Triton: each line is a request of its own, answered by a line.

As in the Python server a few lines are under way at a time and the answer is gathered beside
memory, so what a body takes does not grow with it, and a body with a fault is refused whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from time import monotonic
from typing import NamedTuple

from container.server.codecs.envelope import JSON_TYPE, fault_document, read_document
from container.server.http.json_lines import LinesUnderWay, fault_of_line
from container.server.http.messages import Response
from container.server.types import DeadlinePassed, RequestFault
from container.server.upstream import mark_seen
from container.triton_front.health import BUSY
from container.triton_front.kserve_request import checked_request

LINES_AT_ONCE, BYTES_AT_ONCE = 64, 4 << 20
"""So many lines are under way, or one that is larger: Triton and this server hold each."""
PAUSE_SECONDS = 0.05
"""Before a line is sent again that a full queue of Triton refused."""
FULL_QUEUE = b"maximum queue size"
"""Of Triton's sentence; several models answer it with 400."""

Ask = Callable[[bytes, str, float], Awaitable[Response]]
"""Send body and content type to Triton, and wait so many seconds at most."""


class _Line(NamedTuple):
    """One line under way."""

    number: int
    body: bytes
    kind: str
    answer: asyncio.Future[Response]


async def infer_lines(ask: Ask, body: bytes, seconds: float) -> Response:
    """Return the answer of a body of lines, or the refusal of a line with its number.

    Raises RequestFault.
    """
    try:
        return await _TritonLines(ask, monotonic() + seconds).answer(body)
    except _Refused as refusal:
        return refusal.response


class _Refused(Exception):
    """Triton refused a line."""

    def __init__(self, response: Response) -> None:
        super().__init__()
        self.response = response


class _TritonLines(LinesUnderWay[_Line]):
    """Lines that are requests to Triton, which finishes what it has of them."""

    def __init__(self, ask: Ask, deadline: float) -> None:
        super().__init__()
        self._ask, self._deadline = ask, deadline
        self._bytes = 0

    async def _add(self, number: int, line: bytes) -> None:
        try:
            body, kind = checked_request(line, JSON_TYPE)
        except RequestFault as fault:
            raise fault_of_line(number, fault) from fault
        while self._under_way and (
            len(self._under_way) >= LINES_AT_ONCE or self._bytes + len(body) > BYTES_AT_ONCE
        ):
            await self._answer_oldest()
        self._bytes += len(body)
        self._under_way.append(_Line(number, body, kind, self._send(body, kind)))

    def _send(self, body: bytes, kind: str) -> asyncio.Future[Response]:
        left = self._deadline - monotonic()
        if left <= 0:
            raise DeadlinePassed("The lines were not all answered in time; send fewer of them.")
        answer = asyncio.ensure_future(self._ask(body, kind, left))
        answer.add_done_callback(mark_seen)
        return answer

    async def _answer_oldest(self) -> None:
        line = self._under_way.popleft()
        self._bytes -= len(line.body)
        try:
            answer = await line.answer
            while _is_full_queue(answer):
                await asyncio.sleep(PAUSE_SECONDS)
                answer = await self._send(line.body, line.kind)
            if answer.status != 200:
                sentence = f"Line {line.number}: {_sentence(answer)}"
                raise _Refused(answer._replace(body=fault_document(sentence)))
            if not answer.content_type.startswith(JSON_TYPE):
                raise RequestFault("It asks for binary outputs; JSON lines hold JSON alone.")
            # Outside of strings, which escape them, line ends are spaces.
            self._answers.write(answer.body.replace(b"\n", b" ") + b"\n")
        except RequestFault as fault:
            raise fault_of_line(line.number, fault) from fault


def _is_full_queue(answer: Response) -> bool:
    return answer.status in (*BUSY, 400) and FULL_QUEUE in answer.body


def _sentence(answer: Response) -> str:
    """Return the sentence of Triton's refusal."""
    try:
        error = read_document(answer.body).get("error")
    except RequestFault:
        error = None
    return error if isinstance(error, str) else f"Triton answered {answer.status}."
