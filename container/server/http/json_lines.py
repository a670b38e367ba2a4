"""Bodies of JSON lines: each line is a request, answered by a line of the answer, in order.

A few requests are under way at a time, and the answer is gathered beside memory, so what a body
takes does not grow with it. Nothing is answered before all of it is: a body with a fault is refused
whole, and the sentence says which line has it.
"""

from __future__ import annotations

import asyncio
import re
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from time import monotonic
from typing import Any, NamedTuple

from container.server.data_plane.plane import DataPlane
from container.server.http.messages import Response
from container.server.http.spool import Spool
from container.server.types import (
    JSON_TYPE,
    Arrays,
    ImageSignature,
    QueueFull,
    RequestFault,
    TooLarge,
)

LINES_TYPE = "application/jsonlines"
"""As batch transform and SageMaker's built-in algorithms name it."""
READ_TYPES = (LINES_TYPE, "application/x-ndjson")
LONGEST_LINE_BYTES = 6_291_456
"""Of one line: InvokeEndpoint's own limit of a request."""
IMAGES_AT_ONCE = 32
ROWS_AT_ONCE = 2048
"""So many rows are under way: half of the queue that a server has without asynchronous limits."""
LINES_A_TURN = 16
"""After so many lines the event loop has its turn, so that `/ping` is answered meanwhile."""
LINE = re.compile(rb"[^\n]*\n|[^\n]+\Z")


def is_json_lines(content_type: str) -> bool:
    """Return True for the content type of JSON lines."""
    return content_type.partition(";")[0].strip().lower() in READ_TYPES


async def infer_lines(plane: DataPlane, codec: Any, body: bytes, deadline: float) -> Response:
    """Return the answer of a body of lines, each as `codec` reads and writes a whole body.

    `deadline` is a time of the event loop. Raises RequestFault with the number of the line.
    """
    return await _EngineLines(plane, codec, deadline).answer(body)


def number_lines(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines with their numbers, from 1."""
    for number, match in enumerate(LINE.finditer(body), 1):
        size = match.end() - match.start()
        if size > LONGEST_LINE_BYTES:
            raise TooLarge(
                f"Line {number} has {size} bytes; a line is a request, of {LONGEST_LINE_BYTES} "
                "bytes at most."
            )
        yield number, match.group()


class _Line(NamedTuple):
    """A line under way."""

    number: int
    cost: int
    request: Any
    answer: asyncio.Future[Any]


class LinesUnderWay(ABC):
    """The lines of one body that are under way, and the answers so far."""

    def __init__(self, most_cost: int) -> None:
        """`most_cost`: of the lines under way, or one that is larger."""
        self._under_way: deque[_Line] = deque()
        self._answers = Spool()
        self._cost, self._most_cost = 0, most_cost

    async def answer(self, body: bytes) -> Response:
        """Return the answers of all lines, a line each. Raises RequestFault."""
        try:
            for number, line in number_lines(body):
                await self._add(number, line)
                if number % LINES_A_TURN == 0:
                    await asyncio.sleep(0)
            if not self._under_way and not self._answers.size:
                raise RequestFault("The body has no lines; send a request on each.")
            while self._under_way:
                await self._answer_oldest()
            return Response(200, self._answers.contents(), LINES_TYPE)
        finally:
            for under_way in self._under_way:
                under_way.answer.cancel()

    async def _add(self, number: int, line: bytes) -> None:
        """Submit a line, once there is room for it."""
        try:
            request, cost = self._read(line)
            while self._under_way and self._cost + cost > self._most_cost:
                await self._answer_oldest()
            answer = await self._submit(request)
        except RequestFault as fault:
            raise fault_of_line(number, fault) from fault
        self._cost += cost
        self._under_way.append(_Line(number, cost, request, answer))

    async def _answer_oldest(self) -> None:
        """Wait for the oldest line's answer, and write it down."""
        line = self._under_way.popleft()
        self._cost -= line.cost
        try:
            text, media_type = await self._encode(line.request, await line.answer)
            if not media_type.startswith(JSON_TYPE):
                raise RequestFault("It asks for binary outputs; JSON lines hold JSON alone.")
            self._answers.write(text + b"\n")
        except RequestFault as fault:
            raise fault_of_line(line.number, fault) from fault

    @abstractmethod
    def _read(self, line: bytes) -> tuple[Any, int]:
        """Return a line's request and its cost. Raises RequestFault."""

    @abstractmethod
    async def _submit(self, request: Any) -> asyncio.Future[Any]:
        """Return the answer to come of a request. Raises RequestFault."""

    @abstractmethod
    async def _encode(self, request: Any, answer: Any) -> tuple[bytes, str]:
        """Return the text of an answer, without line ends, and its type. Raises RequestFault."""


class _EngineLines(LinesUnderWay):
    """Lines whose rows go to the engine's queue; a line costs its rows."""

    def __init__(self, plane: DataPlane, codec: Any, deadline: float) -> None:
        is_of_images = isinstance(plane.signature, ImageSignature)
        super().__init__(IMAGES_AT_ONCE if is_of_images else ROWS_AT_ONCE)
        self._plane, self._codec, self._deadline = plane, codec, deadline

    def _read(self, line: bytes) -> tuple[Any, int]:
        request = self._codec.decode_request(line, JSON_TYPE, self._plane.signature)
        return request, len(request.rows)

    async def _submit(self, request: Any) -> asyncio.Future[Arrays]:
        """Submit a request; where others fill the queue, as soon as our own leave it."""
        deadline = self._deadline
        if request.timeout_seconds is not None:
            deadline = min(deadline, monotonic() + request.timeout_seconds)
        while True:
            try:
                return await self._plane.submit(request.rows, deadline=deadline)
            except QueueFull:
                if not self._under_way:
                    raise
            await self._answer_oldest()

    async def _encode(self, request: Any, answer: Arrays) -> tuple[bytes, str]:
        text: tuple[bytes, str] = self._codec.encode_response(
            answer, request, self._plane.signature
        )
        return text


def fault_of_line(number: int, fault: RequestFault) -> RequestFault:
    """Return a fault with its line's number; a fault of an earlier line has its own already."""
    sentence = str(fault)
    if sentence.startswith("Line "):
        return fault
    numbered = type(fault)(f"Line {number}: {sentence}")
    numbered.status = fault.status
    return numbered
