"""The process that owns the engine: starts the HTTP processes, replaces those that die or hang,
drains them.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from container.server.data_plane.plane import Backend
from container.server.process import share_interpreter
from container.server.processes import frames
from container.server.processes.acceptor import Porter
from container.server.processes.worker_session import Answerer
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import Samples, summed
from container.server.telemetry.metrics import GAUGES, counter, gauge

WINDOW_SECONDS = 60.0
MOST = 10
"""Deaths within the window, of all processes together; with more the owner gives up."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0


class Deaths:
    """The deaths of the last minute."""

    def __init__(self) -> None:
        self._times: deque[tuple[float, int]] = deque()

    @property
    def too_many(self) -> bool:
        """Whether replacing has become pointless."""
        return len(self._times) > MOST

    def pause_seconds(self, now: float, place: int) -> float:
        """Counts a death at a place, and says how long its successor waits: twice as long after
        each in the window.
        """
        self._times.append((now, place))
        while self._times[0][0] < now - WINDOW_SECONDS:
            self._times.popleft()
        earlier = sum(1 for _, other in self._times if other == place) - 1
        return min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0**earlier)


FRONTS_DIE = 5
"""Exit code when HTTP processes die faster than they are worth replacing."""
SAMPLES_SECONDS = 0.5
"""How long a process may take to tell its metrics; then those it told last count."""
LAST_SECONDS = 3.0
"""How long a process whose link has ended may take to end itself."""
HUNG_BEATS, HUNG_STARTING_BEATS = 5, 60
"""Beats without a word after which a process is killed: one that serves, and one that does not
serve yet.
"""
FRONT = (sys.executable, "-m", "container.server.processes.http_worker")


@dataclass(frozen=True, kw_only=True)
class FrontSpec:
    """How HTTP processes are started and watched; the numbers of the two sockets, link and door,
    follow the command.
    """

    count: int
    environment: Mapping[str, str]
    command: tuple[str, ...] = FRONT
    beat_seconds: float = 1.0
    """How often each is asked for a sign of life."""


@dataclass(frozen=True, slots=True)
class _Front:
    process: Process
    answerer: Answerer
    door: socket.socket


class Owner:
    """All HTTP processes of one server."""

    def __init__(
        self, *, listener: socket.socket, fronts: FrontSpec, samples: Samples, log: FailureLog
    ) -> None:
        """`listener` listens already; `samples` are the owner's own."""
        self.given_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with one sentence, when HTTP processes die all the time."""
        self._spec, self._samples, self._log = fronts, samples, log
        self._porter = Porter(listener)
        # One process that tokenizes on its own core: threads of its tokenizer cost a third more and
        # take others' cores.
        self._environment = {"TOKENIZERS_PARALLELISM": "false", **fronts.environment}
        self._fronts: dict[int, _Front] = {}
        self._keepers: list[asyncio.Task[None]] = []
        self._beating: asyncio.TimerHandle | None = None
        self._state = frames.LOADING
        self._leaving = asyncio.Event()
        self._killing = False
        self._backend: Backend | None = None
        self._deaths = Deaths()
        self._buried = b""
        self._died = counter(samples, "roundhouse_http_process_deaths")
        gauge(samples, "roundhouse_http_processes", lambda: len(self._porter))

    @property
    def running(self) -> int:
        """Requests of all HTTP processes that are not answered yet."""
        return sum(front.answerer.running for front in self._fronts.values())

    def start(self) -> None:
        """Starts every HTTP process; they say that the server loads until `open`."""
        loop = asyncio.get_running_loop()
        self._keepers = [loop.create_task(self._keep(place)) for place in range(self._spec.count)]
        self._beating = loop.call_later(self._spec.beat_seconds, self._beat)

    def open(self, backend: Backend) -> None:
        """Begins to answer: the engine is loaded and warm.

        No process is healthy before all that serve would answer.
        """
        self._backend = backend
        self._tell(frames.OPENING)
        self._agree()

    async def drain(self, seconds: float) -> None:
        """Stops accepting, has every HTTP process finish and end, and kills those that have not in
        time.
        """
        self._porter.close()
        self._tell(frames.DRAINING)
        self._leaving.set()
        if self._keepers:
            await asyncio.wait(self._keepers, timeout=seconds)
        await self.kill()

    async def kill(self) -> None:
        """Ends whatever HTTP process is left, at once."""
        self._porter.close()
        self._state, self._killing = frames.DRAINING, True
        self._leaving.set()
        if self._beating is not None:
            self._beating.cancel()
        for front in self._fronts.values():
            _kill(front.process)
        await asyncio.gather(*self._keepers)

    async def samples(self) -> bytes:
        """The samples of the owner and every HTTP process, the dead ones' counters included,
        summed.
        """
        asks = [
            asyncio.ensure_future(front.answerer.ask_samples()) for front in self._fronts.values()
        ]
        if asks:
            await asyncio.wait(asks, timeout=SAMPLES_SECONDS)
        for ask in asks:
            ask.cancel()
        # Those of now: one that died meanwhile is among the buried, and would count twice.
        return summed(
            (
                self._samples.snapshot(),
                self._buried,
                *(front.answerer.samples for front in self._fronts.values()),
            )
        )

    def _tell(self, state: int) -> None:
        self._state = state
        for front in self._fronts.values():
            front.answerer.tell(state, self._backend)

    def _knows(self, door: socket.socket, state: int) -> None:
        """A process that serves has heard what the owner is; it gets no connection before it knows
        the present state.
        """
        if state == self._state:
            self._porter.add(door)
        self._agree()

    def _agree(self) -> None:
        """Once every process that serves answers requests, each may say so."""
        known = {front.answerer.known for front in self._fronts.values()}
        if self._state == frames.OPENING and known <= {None, frames.OPENING}:
            self._tell(frames.READY)

    def _beat(self) -> None:
        """Asks every process for a sign of life, and kills those that have given none for too long."""
        self._beating = asyncio.get_running_loop().call_later(self._spec.beat_seconds, self._beat)
        if (
            self._backend is not None and self._backend.broken
        ):  # perhaps no request was left to fail, and none has come since
            self._broke()
        for place, front in self._fronts.items():
            missed = front.answerer.missed_beats
            if missed >= (HUNG_STARTING_BEATS if front.answerer.known is None else HUNG_BEATS):
                self._log.report(
                    "http_process_hangs",
                    stage="process",
                    place=place,
                    seconds=missed * self._spec.beat_seconds,
                )
                _kill(front.process)
            front.answerer.beat()

    def _broke(self) -> None:
        """The engine fails on every request: no front is healthy any more."""
        if self._state in (frames.OPENING, frames.READY):
            self._tell(frames.BROKEN)

    def _failed(self, fault: BaseException) -> None:
        self._log.report("request_failed", fault, stage="process", status=503)

    async def _keep(self, place: int) -> None:
        """Keeps one HTTP process alive until the server drains; never cancelled, so that no process
        is left behind.
        """
        while not self._leaving.is_set():
            await self._live(place)
            if self._leaving.is_set():
                return
            pause = self._deaths.pause_seconds(asyncio.get_running_loop().time(), place)
            if self._deaths.too_many:
                self._give_up()
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), pause)

    async def _live(self, place: int) -> None:
        """One HTTP process, from start to end."""
        front = await self._started()
        self._fronts[place] = front
        front.answerer.tell(
            self._state, self._backend
        )  # it may have changed since the process was started
        if self._killing:
            _kill(front.process)
        await front.answerer.lost.wait()
        self._porter.remove(front.door)
        self._agree()
        code = await _exit_code(front.process)
        del self._fronts[place]
        front.door.close()
        self._buried = summed((self._buried, summed((front.answerer.samples,), without=GAUGES)))
        if not self._leaving.is_set():
            self._died.add()
            self._log.report("http_process_died", stage="process", exit_code=code, place=place)

    async def _started(self) -> _Front:
        """A process with its ends of a link and a door; nothing connects to anything."""
        link, its_link = socket.socketpair()
        door, its_door = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sockets = (its_link.fileno(), its_door.fileno())
        with its_link, its_door:
            # A session of its own: a terminal's Ctrl-C is the owner's business, also while the
            # process is still importing.
            process = await asyncio.create_subprocess_exec(
                *self._spec.command,
                *map(str, sockets),
                pass_fds=sockets,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        loop = asyncio.get_running_loop()
        _, answerer = await loop.create_unix_connection(lambda: self._answerer(door), sock=link)
        return _Front(process, answerer, door)

    def _answerer(self, door: socket.socket) -> Answerer:
        return Answerer(
            state=self._state,
            backend=self._backend,
            knows=lambda state: self._knows(door, state),
            broke=self._broke,
            failed=self._failed,
            samples_of_all=self.samples,
        )

    def _give_up(self) -> None:
        if not self.given_up.done():
            self.given_up.set_result(
                f"HTTP processes ended {MOST + 1} times within a minute; their own last lines above say why, "
                "and ROUNDHOUSE_HTTP_PROCESSES=1 serves without them."
            )


async def own(
    *,
    listener: socket.socket,
    fronts: FrontSpec,
    load: Callable[[], Awaitable[Backend]],
    stop: asyncio.Event,
    drain_seconds: float,
    samples: Samples,
    log: FailureLog,
    say: Callable[[str], object],
) -> int:
    """The exit code of a server of several processes: 0 drained, 5 its HTTP processes die. Raises
    what `load` raises.

    HTTP processes answer while `load` runs, as a server that loads. `stop`, set by the signals,
    drains. `listener` is closed.
    """
    share_interpreter()
    owner = Owner(listener=listener, fronts=fronts, samples=samples, log=log)
    owner.start()
    loading, stopping = asyncio.ensure_future(load()), asyncio.ensure_future(stop.wait())
    try:
        ends: set[asyncio.Future[Any]] = {stopping, owner.given_up}
        await asyncio.wait({loading, *ends}, return_when=asyncio.FIRST_COMPLETED)
        if loading.done():
            owner.open(loading.result())
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if owner.given_up.done():
            say(owner.given_up.result())
            return FRONTS_DIE
        await owner.drain(drain_seconds)
        return 0
    finally:
        for task in (loading, stopping):
            task.cancel()
        await owner.kill()


async def _exit_code(process: Process) -> int:
    """Of a process whose link has ended; it is killed when it does not follow."""
    try:
        return await asyncio.wait_for(process.wait(), LAST_SECONDS)
    except TimeoutError:
        _kill(process)
        return await process.wait()


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
