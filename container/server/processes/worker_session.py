"""The supervisor's end of a channel: passes one worker's requests to the engine, answers back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from container.server.data_plane.plane import LOADING, Backend
from container.server.processes import frames
from container.server.processes.frames import ChannelEnd, Frame, InvalidFrame
from container.server.types import Arrays, RequestFault, TooLarge, Unavailable

INTERNAL_FAULT = "The server failed on this request; try again in a second."


class WorkerSession(ChannelEnd):
    """One HTTP worker as the supervisor sees it."""

    def __init__(
        self,
        *,
        state: int,
        backend: Backend | None,
        acknowledged: Callable[[int], None],
        engine_broke: Callable[[], None],
        failed: Callable[[BaseException], None],
        all_metric_values: Callable[[], Awaitable[bytes]],
    ) -> None:
        """`acknowledged` is called with each state that the worker acknowledges once it serves.

        `engine_broke` is called when the backend turns out broken, `failed` with faults of this
        server.
        """
        super().__init__()
        self.lost = asyncio.Event()
        """Set when the channel has ended."""
        self.known: int | None = None
        """The last state that the worker acknowledged; `None` while it does not serve."""
        self.missed_heartbeats = 0
        """Heartbeats since the worker last sent a frame."""
        self.metric_values = b""
        """The worker's metric values, as last received."""
        self._state, self._backend = state, backend
        self._acknowledged, self._engine_broke, self._failed = acknowledged, engine_broke, failed
        self._all_metric_values = all_metric_values
        self._running: dict[int, asyncio.Future[Arrays]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send_state(self, state: int, backend: Backend | None) -> None:
        """Send the worker the supervisor's state, and use this backend from now on."""
        self._state, self._backend = state, backend
        self._send(frames.signal_frame(frames.STATE, detail=state))

    def send_heartbeat(self) -> None:
        """Send the state once more; a worker that serves acknowledges it."""
        self.missed_heartbeats += 1
        self.send_state(self._state, self._backend)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the state to the worker."""
        super().connection_made(transport)
        self.send_state(self._state, self._backend)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the worker's requests: it is gone."""
        self.known = None
        unfinished: list[asyncio.Future[Any]] = [
            *self._running.values(),
            *self._wanted.values(),
            *self._tasks,
        ]
        self._running = {}
        for future in unfinished:
            future.cancel()
        self.lost.set()

    def pause_writing(self) -> None:
        """Stop reading from a worker that reads too slowly."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read from the worker again."""
        self._transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Process every whole frame; invalid bytes close the channel."""
        self.missed_heartbeats = 0
        try:
            for frame in self._frame_splitter.split(data):
                if frame.kind <= frames.TENSORS:
                    self._submit(frame)
                else:
                    self._receive(frame)
        except InvalidFrame as fault:
            self._failed(fault)
            self._transport.abort()

    def _submit(self, frame: Frame) -> None:
        identity = frame.id
        try:
            if self._backend is None:
                raise Unavailable(LOADING)
            rows = frames.request_rows(frame)
            future = self._backend.submit(rows, deadline=self._loop.time() + frame.number)
        except RequestFault as fault:
            self._send_fault(identity, fault)
            return
        self._running[identity] = future
        future.add_done_callback(partial(self._answer, identity))

    def _answer(self, identity: int, future: asyncio.Future[Arrays]) -> None:
        if self._running.pop(identity, None) is None:
            return
        if future.cancelled():
            self._send(frames.fault_frame(identity, Unavailable(INTERNAL_FAULT)))
            return
        fault = future.exception()
        if fault is None:
            waiting = 0 if self._backend is None else self._backend.waiting
            try:
                self._send(frames.response_frame(identity, future.result(), waiting))
            except TooLarge as too_large:
                self._send_fault(identity, too_large)
        else:
            self._send_fault(identity, fault)

    def _send_fault(self, identity: int, fault: BaseException) -> None:
        if not isinstance(fault, RequestFault):
            self._failed(fault)
            fault = Unavailable(INTERNAL_FAULT)
        self._send(frames.fault_frame(identity, fault))
        if self._backend is not None and self._backend.is_broken:
            self._engine_broke()

    def _receive(self, frame: Frame) -> None:
        """Process a frame that is no request."""
        if frame.kind == frames.CANCEL:
            future = self._running.pop(frame.id, None)
            if future is not None:
                future.cancel()
        elif frame.kind == frames.SNAPSHOT:
            self.metric_values = frames.text_of(frame)  # also when its request has given up
            self._receive_snapshot(frame)
        elif frame.kind == frames.STATE:
            self.known = frame.detail
            self._acknowledged(frame.detail)
        elif frame.kind == frames.SNAPSHOT_WANTED:
            task = self._loop.create_task(self._send_metric_values(frame.id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _send_metric_values(self, identity: int) -> None:
        self._send(frames.snapshot_frame(identity, await self._all_metric_values()))
