"""The load driver: sends one phase's requests with aiohttp, as an open or a closed loop."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakSet

import aiohttp
from yarl import URL

from roundhouse.errors import AwsError, NotReadyError
from roundhouse.measure.destination import Destination, RequestSource, refusal
from roundhouse.measure.measurement import Answer, Measurement
from roundhouse.measure.options import ClientOptions, Loop, Phase

CONNECT_SECONDS = 10.0
DRAIN_SECONDS = 10.0
"""Wait for answers after a phase's end."""
ERROR_PAUSE_SECONDS = 0.1
"""A user that was refused waits so long, instead of asking as fast as the machine can."""
TICK_SECONDS = 0.05
ERROR_BYTES = 4096
BURST = 64
"""Requests that are offered one after the other when they are late, before answers are read."""

NANOSECONDS = 1_000_000_000
TFD_FLAGS = 0o4000 | 0o2000000
"""TFD_NONBLOCK and TFD_CLOEXEC."""
CLOCK_MONOTONIC = 1
TFD_TIMER_ABSTIME = 1
LIBC = ctypes.CDLL(None)

USED_CONNECTIONS: WeakSet[Any] = WeakSet()
CONNECTION_REUSED = ContextVar("CONNECTION_REUSED", default=False)


class Timer:
    """Wakes a coroutine to some ten microseconds with Linux's timerfd, else to a millisecond.

    An event loop's own timers are up to a millisecond late. Python 3.13 has os.timerfd_create.
    """

    def __init__(self) -> None:
        create = getattr(LIBC, "timerfd_create", None)
        self._file = -1 if create is None else int(create(CLOCK_MONOTONIC, TFD_FLAGS))
        self._wake = asyncio.Event()
        if self._file >= 0:
            asyncio.get_running_loop().add_reader(self._file, self._expire)

    def _expire(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._file, 8)
        self._wake.set()

    async def sleep_until(self, moment: float) -> None:
        """Return at a moment of the monotonic clock."""
        if self._file < 0:
            await asyncio.sleep(max(0.0, moment - time.monotonic()))
            return
        # struct itimerspec: no interval, then the absolute time.
        value = (ctypes.c_long * 4)(0, 0, *divmod(max(1, int(moment * NANOSECONDS)), NANOSECONDS))
        self._wake.clear()
        LIBC.timerfd_settime(self._file, TFD_TIMER_ABSTIME, ctypes.byref(value), None)
        await self._wake.wait()

    def close(self) -> None:
        """Release the kernel's timer."""
        if self._file >= 0:
            asyncio.get_running_loop().remove_reader(self._file)
            os.close(self._file)


def arrival_moments(phase: Phase, seed: str) -> Iterator[float]:
    """Yield the seconds into an open loop's phase at which requests are due: a Poisson process."""
    chance = random.Random(seed)
    moment = chance.expovariate(phase.start)
    while moment < phase.seconds:
        yield moment
        moment += chance.expovariate(phase.start)


def machine_clock() -> tuple[float, float]:
    """Return the busy and the whole time of all cores of this machine; zeros where not known."""
    try:
        times = [
            int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        ]
    except (OSError, ValueError):
        return 0.0, 0.0
    return float(sum(times) - times[3] - times[4]), float(sum(times))


@dataclass(frozen=True, kw_only=True)
class Driver:
    """Sends requests over kept-alive connections, which stay open from phase to phase."""

    session: aiohttp.ClientSession
    url: URL
    requests: RequestSource
    options: ClientOptions
    drain_seconds: float

    async def post(self, data: bytes, headers: dict[str, str]) -> Answer:
        """Send a request and return its answer."""
        async with self.session.post(
            self.url, data=data, headers=headers, allow_redirects=False
        ) as response:
            return await self.read(response)

    async def read(self, response: aiohttp.ClientResponse) -> Answer:
        """Return the answer of a response, whose body is dropped unless it is a refusal."""
        body = await response.read()
        if response.status == 200:
            return Answer()
        return Answer(fault=refusal(response.status, body[:ERROR_BYTES]))

    async def run(
        self, measurement: Measurement, halt: asyncio.Event, progress: Callable[[], None]
    ) -> None:
        """Run one phase; `progress` is called every second. `halt` ends it and drops the rest."""
        with contextlib.closing(Timer()) as timer:
            run = _PhaseRun(driver=self, measurement=measurement, timer=timer)
            try:
                await run.run(halt, progress)
            finally:
                await run.cancel()


@dataclass(kw_only=True)
class _PhaseRun:
    driver: Driver
    measurement: Measurement
    timer: Timer
    begin: float = 0.0
    due: asyncio.Queue[float] = field(default_factory=asyncio.Queue)
    """Moments at which requests were due, while they wait for a connection."""
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    in_flight: int = 0
    given_up: str | None = None
    failure: BaseException | None = None
    """An error of ours, which ends the load."""

    async def run(self, halt: asyncio.Event, progress: Callable[[], None]) -> None:
        measurement, connections = self.measurement, self.driver.options.connections
        drain_seconds, is_open = self.driver.drain_seconds, measurement.phase.loop is Loop.open
        for _ in range(connections if is_open else 0):
            self._start(self._send_due())
        await asyncio.sleep(0)
        self.begin = time.monotonic()
        end = self.begin + measurement.phase.seconds
        clocks = (self.begin, time.process_time(), *machine_clock())
        second = measurement.start_second(0)
        source = self._start(self._offer() if is_open else self._spawn())
        now = self.begin
        while not source.done() or self.pending or (now < end and not is_open):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(TICK_SECONDS):
                    await halt.wait()
            if self.failure is not None:
                raise self.failure
            now = time.monotonic()
            if halt.is_set():
                break
            if now > end + drain_seconds:
                self.given_up = f"no answer within {drain_seconds:g} s of the phase's end"
                break
            if now >= self.begin + second.second + 1:
                clocks = self._close_second(clocks)
                progress()
                second = measurement.start_second(int(now - self.begin))
        await self.cancel()
        self._close_second(clocks)
        progress()

    async def cancel(self) -> None:
        """End every task; requests that were given up count as unanswered."""
        # More than once: a request whose timeout ends at the same moment turns the cancellation
        # into its own TimeoutError, and its connection would wait for the next request for ever.
        while self.tasks:
            for task in self.tasks:
                task.cancel()
            await asyncio.wait(self.tasks, timeout=TICK_SECONDS)
        while self.given_up is not None and not self.due.empty():
            due = self.due.get_nowait()
            self.measurement.record_unanswered(self.given_up, due, due, time.monotonic())

    @property
    def pending(self) -> int:
        return self.in_flight + self.due.qsize()

    def _close_second(
        self, since: tuple[float, float, float, float]
    ) -> tuple[float, float, float, float]:
        now, cpu = time.monotonic(), time.process_time()
        busy, whole = machine_clock()
        second = self.measurement.seconds_seen[-1]
        second.in_flight = self.in_flight
        second.cpu_share = (cpu - since[1]) / max(now - since[0], 1e-6)
        second.machine_share = (busy - since[2]) / max(whole - since[3], 1.0)
        return now, cpu, busy, whole

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def _finish(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled():
            self.failure = self.failure or task.exception()

    async def _offer(self) -> None:
        phase, options = self.measurement.phase, self.driver.options
        moments = arrival_moments(phase, f"{options.seed} {phase.name}")
        for number, moment in enumerate(moments):
            due = self.begin + moment
            if due > time.monotonic():
                await self.timer.sleep_until(due)
            elif number % BURST == 0:
                await asyncio.sleep(0)
            self.measurement.record_due(time.monotonic() - due)
            self.due.put_nowait(due)

    async def _send_due(self) -> None:
        """Send due requests one after the other, as one connection does."""
        while True:
            await self._exchange(await self.due.get())

    async def _spawn(self) -> None:
        for _ in range(int(self.measurement.phase.start)):
            self._start(self._user())

    async def _user(self) -> None:
        end = self.begin + self.measurement.phase.seconds
        while (due := time.monotonic()) < end:
            self.measurement.record_due(None)
            if not await self._exchange(due):
                await asyncio.sleep(ERROR_PAUSE_SECONDS)

    async def _exchange(self, due: float) -> bool:
        """Send one request and record its answer; return whether it was answered."""
        measurement, sent = self.measurement, time.monotonic()
        self.in_flight += 1
        try:
            answer = await self._send(*self.driver.requests.next())
        except asyncio.CancelledError:
            if self.given_up is not None:
                measurement.record_unanswered(self.given_up, due, sent, time.monotonic())
            raise
        except (aiohttp.ClientError, AwsError, TimeoutError) as error:
            reason = failure_reason(error, self.driver.options.timeout)
            if isinstance(error, TimeoutError):
                measurement.record_unanswered(reason, due, sent, time.monotonic())
            else:
                measurement.record_error(reason)
            return False
        finally:
            self.in_flight -= 1
        if answer.fault is None:
            measurement.record_answer(due, sent, time.monotonic(), answer)
        else:
            measurement.record_error(answer.fault)
        return answer.fault is None

    async def _send(self, data: bytes, headers: dict[str, str]) -> Answer:
        """Send a request, once more if the server closed the idle connection it was sent over."""
        CONNECTION_REUSED.set(False)
        try:
            return await self.driver.post(data, headers)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            if not CONNECTION_REUSED.get():
                raise
            self.measurement.reconnected += 1
            return await self.driver.post(data, headers)


class _Connector(aiohttp.TCPConnector):
    """Notes whether a request's connection was used before.

    aiohttp's own tracing does the same and takes some 30 % more of the processor.
    """

    async def connect(self, *arguments: Any, **options: Any) -> Any:
        connection = await super().connect(*arguments, **options)
        CONNECTION_REUSED.set(connection.protocol in USED_CONNECTIONS)
        USED_CONNECTIONS.add(connection.protocol)
        return connection


def failure_reason(error: Exception, timeout: float) -> str:
    """Return why a request had no answer; `timeout`: the seconds that it could take."""
    if isinstance(error, aiohttp.ClientConnectorError):
        return f"no connection: {error.os_error.strerror or error.os_error!r}"
    if isinstance(error, aiohttp.ServerTimeoutError):
        return f"no connection within {CONNECT_SECONDS:g} s"
    if isinstance(error, TimeoutError):
        return f"no answer within {timeout:g} s"
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "connection lost: closed by the server"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"the answer is no HTTP ({error.message})"
    if isinstance(error, AwsError):
        return str(error)
    return f"connection lost: {error or type(error).__name__}"


def client_session(options: ClientOptions) -> aiohttp.ClientSession:
    """Return an HTTP session for a load; it must be closed."""
    return aiohttp.ClientSession(
        connector=_Connector(limit=options.connections, keepalive_timeout=60),
        timeout=aiohttp.ClientTimeout(total=options.timeout, sock_connect=CONNECT_SECONDS),
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding"),
    )


def not_answering(url: URL, error: Exception, timeout: float) -> NotReadyError:
    """Return that a server gave no answer to a first request."""
    reason = failure_reason(error, timeout)
    return NotReadyError(
        f"{url.origin()}: does not answer ({reason}); is the server, or the cloud, up?"
    )


D = TypeVar("D", bound=Driver)


@contextlib.asynccontextmanager
async def open_driver(
    driver: Callable[..., D],
    destination: Destination,
    requests: RequestSource,
    options: ClientOptions,
    drain_seconds: float = DRAIN_SECONDS,
) -> AsyncIterator[D]:
    """Open a driver of a kind, with its HTTP session."""
    async with client_session(options) as session:
        yield driver(
            session=session,
            url=URL(destination.url, encoded=True),
            requests=requests,
            options=options,
            drain_seconds=min(drain_seconds, options.timeout),
        )
