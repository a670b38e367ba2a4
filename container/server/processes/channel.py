"""The IPC channel of an HTTP worker to the supervisor: a backend like any other, over a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from container.server.processes import frames
from container.server.processes.frames import ChannelEnd, Frame, InvalidFrame
from container.server.types import Arrays, DeadlinePassed, QueueFull, Unavailable

GONE = "The process that owns the engine ended; this server is being replaced."
DEFAULT_SECONDS = 60.0
SWEEP_SECONDS = 1.0
"""Seconds between checks of unanswered requests, in case the supervisor hangs."""
SILENT_SWEEPS = 5
"""Sweeps without a frame after which the supervisor, which sends one a second, is silent."""


class _PendingRequest(asyncio.Future[Arrays]):
    """A request that the supervisor has; cancelling it informs the supervisor."""

    # No done callback does this: it would cost every request, not only the cancelled ones, a turn
    # of the event loop.
    identity: int
    rows: int
    deadline: float
    forget: Callable[[_PendingRequest], None]

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel, and remove the rows from the supervisor's queue."""
        if not super().cancel(msg):
            return False
        self.forget(self)
        return True


class EngineChannel(ChannelEnd):
    """The worker's end of the channel."""

    def __init__(
        self,
        *,
        max_rows: int,
        changed: Callable[[EngineChannel], None],
        metric_values: Callable[[], bytes] = bytes,
    ) -> None:
        """`max_rows` may be unanswered at once; `changed` is called at every new state.

        `metric_values` returns this process' metric values.
        """
        super().__init__()
        self.state: int | None = None
        """The supervisor's last state; `None` before the first."""
        self.lost = False
        self.state_received = asyncio.Event()
        """Set once the supervisor has sent its state, or is gone."""
        self._serves = self._paused = False
        self._max_rows, self._changed, self._metric_values = max_rows, changed, metric_values
        self._pending: dict[int, _PendingRequest] = {}
        self._rows = self._supervisor_waiting = self._silent_sweeps = 0

    @property
    def is_broken(self) -> bool:
        """True when the supervisor is gone, or its engine fails on every request."""
        return self.lost or self.state == frames.BROKEN

    @property
    def silent(self) -> bool:
        """True while the supervisor has sent nothing for so long that it probably hangs."""
        return self._silent_sweeps >= SILENT_SWEEPS

    @property
    def waiting(self) -> int:
        """Rows in the supervisor's queue, as of its last answer."""
        return self._supervisor_waiting if self._pending else 0

    def refuse(self, rows: int) -> None:
        """Raise what `submit` would raise now of so many rows."""
        if self.lost:
            raise Unavailable(GONE)
        if self._rows + rows > self._max_rows:
            raise QueueFull(
                f"{self._rows} rows of this process are unanswered and at most {self._max_rows} "
                "may be; try again in a second."
            )
        if self._paused:
            raise QueueFull(
                "The engine's process takes requests more slowly than they come; try again in a "
                "second."
            )

    def submit(
        self, rows: Sequence[Any], *, deadline: float | None = None
    ) -> asyncio.Future[Arrays]:
        """Send rows and return their answers to come; cancelling informs the supervisor.

        Raises QueueFull and Unavailable.
        """
        self.refuse(len(rows))
        loop = self._loop
        now = loop.time()
        self._last += 1
        pending = _PendingRequest(loop=loop)
        pending.identity, pending.rows, pending.forget = self._last, len(rows), self._forget
        pending.deadline = now + DEFAULT_SECONDS if deadline is None else deadline
        self._send(frames.request_frame(self._last, rows, pending.deadline - now))
        self._pending[self._last] = pending
        self._rows += pending.rows
        return pending

    async def all_metric_values(self) -> bytes:
        """Return the metric values of all processes, summed by the supervisor.

        Raises Unavailable.
        """
        if self.lost:
            raise Unavailable(GONE)
        return await self.request_snapshot()

    def serve(self) -> None:
        """Report that this process takes connections, and acknowledge every state from now on."""
        self._serves = True
        self._acknowledge()

    def close(self) -> None:
        """Close the channel; the supervisor drops unanswered requests."""
        self._flush()
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to check deadlines."""
        super().connection_made(transport)
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail every request: the supervisor is gone."""
        self.lost = True
        self._sweeping.cancel()
        unanswered: list[asyncio.Future[Any]] = [*self._pending.values(), *self._wanted.values()]
        self._pending, self._wanted, self._rows = {}, {}, 0
        for future in unanswered:
            if not future.done():
                future.set_exception(Unavailable(GONE))
        self._changed(self)
        self.state_received.set()

    def pause_writing(self) -> None:
        """Refuse requests: the supervisor reads too slowly."""
        self._paused = True

    def resume_writing(self) -> None:
        """Send requests again."""
        self._paused = False

    def data_received(self, data: bytes) -> None:
        """Process every whole frame."""
        self._silent_sweeps = 0
        try:
            for frame in self._frame_splitter.split(data):
                if frame.kind == frames.ANSWER:
                    self._supervisor_waiting = int(frame.number)
                    pending = self._take(frame.id)
                    if pending is not None:
                        pending.set_result(frames.arrays_of(frame))
                else:
                    self._receive(frame)
        except InvalidFrame:
            self._transport.abort()

    def _receive(self, frame: Frame) -> None:
        """Process a frame that is no answer."""
        if frame.kind == frames.FAULT:
            pending = self._take(frame.id)
            if pending is not None:
                pending.set_exception(frames.fault_of(frame))
        elif frame.kind == frames.STATE:
            if frame.detail != self.state:
                self.state = frame.detail
                self._changed(self)
                self.state_received.set()
            if self._serves:
                self._acknowledge()
        elif frame.kind == frames.SNAPSHOT_WANTED:
            self._send(frames.snapshot_frame(frame.id, self._metric_values()))
        elif frame.kind == frames.SNAPSHOT:
            self._receive_snapshot(frame)

    def _acknowledge(self) -> None:
        if self.state is not None:
            self._send(frames.signal_frame(frames.STATE, detail=self.state))

    def _take(self, identity: int) -> _PendingRequest | None:
        pending = self._pending.pop(identity, None)
        if pending is not None:
            self._rows -= pending.rows
        return pending

    def _forget(self, pending: _PendingRequest) -> None:
        if self._take(pending.identity) is not None and not self.lost:
            self._send(frames.signal_frame(frames.CANCEL, identity=pending.identity))

    def _sweep(self) -> None:
        """Fail requests whose deadline has passed; all are checked, since deadlines differ."""
        self._sweeping = self._loop.call_later(SWEEP_SECONDS, self._sweep)
        self._silent_sweeps += 1
        late = self._loop.time() - SWEEP_SECONDS
        late_message = "The engine's process did not answer in the request's time; try again."
        for pending in [request for request in self._pending.values() if request.deadline < late]:
            self._forget(pending)
            pending.set_exception(DeadlinePassed(late_message))
