"""The supervisor: has the engine, starts the HTTP workers, restarts those that end or hang."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from container.server.data_plane.plane import Backend
from container.server.process import tune_interpreter
from container.server.processes import frames
from container.server.processes.acceptor import Acceptor
from container.server.processes.restart_policy import MOST, RestartPolicy
from container.server.processes.worker_session import WorkerSession
from container.server.telemetry.failure_log import FailureLog
from container.server.telemetry.metric_values import MetricValues, sum_snapshots
from container.server.telemetry.metrics import GAUGES, counter, gauge

WORKERS_DIE = 5
"""Exit code when HTTP processes die faster than they are worth replacing."""
METRICS_SECONDS = 0.5
"""Seconds for a worker to send its metrics; then its last ones count."""
LAST_SECONDS = 3.0
"""Seconds for a process whose channel has ended to end itself."""
HUNG_HEARTBEATS, HUNG_STARTING_HEARTBEATS = 5, 60
"""Unanswered heartbeats after which a process is killed: one that serves, one that starts."""
WORKER = (sys.executable, "-m", "container.server.processes.http_worker")


@dataclass(frozen=True, kw_only=True)
class WorkerSpec:
    """The HTTP workers; the numbers of the sockets for channel and connections end the command."""

    count: int
    environment: Mapping[str, str]
    command: tuple[str, ...] = WORKER
    heartbeat_seconds: float = 1.0


@dataclass(frozen=True, slots=True)
class _Worker:
    process: Process
    session: WorkerSession
    worker_socket: socket.socket

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            self.process.kill()


class Supervisor:
    """All HTTP workers of one server."""

    def __init__(
        self,
        *,
        listener: socket.socket,
        workers: WorkerSpec,
        metric_values: MetricValues,
        log: FailureLog,
    ) -> None:
        """`listener` listens already; `metric_values` are the supervisor's own."""
        self._gave_up: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """Done, with one sentence, when HTTP processes die all the time."""
        self._spec, self._metric_values, self._log = workers, metric_values, log
        self._acceptor = Acceptor(listener)
        # One process that tokenizes on its own core: threads of its tokenizer cost a third more and
        # take others' cores.
        self._environment = {"TOKENIZERS_PARALLELISM": "false", **workers.environment}
        self._workers: dict[int, _Worker] = {}
        self._keep_tasks: list[asyncio.Task[None]] = []
        self._heartbeat_timer: asyncio.TimerHandle | None = None
        self._state = frames.LOADING
        self._leaving = asyncio.Event()
        self._killing = False
        self._backend: Backend | None = None
        self._restarts = RestartPolicy()
        self._ended_workers = b""
        self._worker_deaths = counter(metric_values, "roundhouse_http_process_deaths")
        gauge(metric_values, "roundhouse_http_processes", lambda: len(self._acceptor))

    async def serve(
        self,
        load: Callable[[], Awaitable[Backend]],
        stop: asyncio.Event,
        *,
        drain_seconds: float,
        say: Callable[[str], object],
    ) -> int:
        """Serve until `stop` is set, then drain; return the exit code.

        0 drained, 5 workers keep ending. Workers answer that the server is loading while `load`
        runs. The listener is closed. Raises what `load` raises.
        """
        tune_interpreter()
        self.start()
        loading, stopping = asyncio.ensure_future(load()), asyncio.ensure_future(stop.wait())
        try:
            ends: set[asyncio.Future[Any]] = {stopping, self._gave_up}
            await asyncio.wait({loading, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                self._open(loading.result())
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self._gave_up.done():
                say(self._gave_up.result())
                return WORKERS_DIE
            await self._drain(drain_seconds)
            return 0
        finally:
            for task in (loading, stopping):
                task.cancel()
            await self.kill()

    def start(self) -> None:
        """Start every HTTP worker; they answer that the server is loading."""
        loop = asyncio.get_running_loop()
        numbers = range(self._spec.count)
        self._keep_tasks = [loop.create_task(self._keep_alive(number)) for number in numbers]
        self._heartbeat_timer = loop.call_later(self._spec.heartbeat_seconds, self._send_heartbeats)

    def _open(self, backend: Backend) -> None:
        """Start to answer; no worker is healthy before all that serve would answer."""
        self._backend = backend
        self._set_state(frames.OPENING)
        self._become_ready()

    async def _drain(self, seconds: float) -> None:
        """Stop accepting, let every worker finish, and kill those that have not in time."""
        self._acceptor.close()
        self._set_state(frames.DRAINING)
        self._leaving.set()
        if self._keep_tasks:
            await asyncio.wait(self._keep_tasks, timeout=seconds)
        await self.kill()

    async def kill(self) -> None:
        """Kill the remaining workers."""
        self._acceptor.close()
        self._state, self._killing = frames.DRAINING, True
        self._leaving.set()
        if self._heartbeat_timer is not None:
            self._heartbeat_timer.cancel()
        for worker in self._workers.values():
            worker.kill()
        await asyncio.gather(*self._keep_tasks)

    async def metric_values(self) -> bytes:
        """Return the sum of the supervisor's and all workers' values, with ended ones' counters."""
        sessions = [worker.session for worker in self._workers.values()]
        requests = [asyncio.ensure_future(session.request_snapshot()) for session in sessions]
        if requests:
            await asyncio.wait(requests, timeout=METRICS_SECONDS)
        for request in requests:
            request.cancel()
        # The workers of now: one that died meanwhile is in _ended_workers, and would count twice.
        present = [worker.session.metric_values for worker in self._workers.values()]
        return sum_snapshots((self._metric_values.snapshot(), self._ended_workers, *present))

    def _set_state(self, state: int) -> None:
        self._state = state
        for worker in self._workers.values():
            worker.session.send_state(state, self._backend)

    def _acknowledged(self, worker_socket: socket.socket, state: int) -> None:
        """Give connections to a worker that knows the present state."""
        if state == self._state:
            self._acceptor.add(worker_socket)
        self._become_ready()

    def _become_ready(self) -> None:
        """Become ready once every worker that serves has acknowledged OPENING."""
        known = {worker.session.known for worker in self._workers.values()}
        if self._state == frames.OPENING and known <= {None, frames.OPENING}:
            self._set_state(frames.READY)

    def _send_heartbeats(self) -> None:
        """Send every worker a heartbeat, and kill those that have missed too many."""
        interval = self._spec.heartbeat_seconds
        self._heartbeat_timer = asyncio.get_running_loop().call_later(
            interval, self._send_heartbeats
        )
        # Perhaps no request was left to fail, and none has come since.
        if self._backend is not None and self._backend.is_broken:
            self._engine_broke()
        for number, worker in self._workers.items():
            session = worker.session
            missed = session.missed_heartbeats
            most = HUNG_STARTING_HEARTBEATS if session.known is None else HUNG_HEARTBEATS
            if missed >= most:
                seconds = missed * interval
                self._log.report(
                    "http_process_hangs", stage="process", worker=number, seconds=seconds
                )
                worker.kill()
            session.send_heartbeat()

    def _engine_broke(self) -> None:
        """Make every worker unhealthy: the engine fails on every request."""
        if self._state in (frames.OPENING, frames.READY):
            self._set_state(frames.BROKEN)

    async def _keep_alive(self, number: int) -> None:
        """Restart one worker until the server drains.

        This task is never cancelled, so that no process is left behind.
        """
        while not self._leaving.is_set():
            await self._run_worker(number)
            if self._leaving.is_set():
                return
            pause = self._restarts.restart_delay_seconds(asyncio.get_running_loop().time(), number)
            if self._restarts.is_exhausted:
                if not self._gave_up.done():
                    self._gave_up.set_result(
                        f"HTTP processes ended {MOST + 1} times within a minute; their own last "
                        "lines above say why, and ROUNDHOUSE_HTTP_PROCESSES=1 serves without them."
                    )
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(self._leaving.wait(), pause)

    async def _run_worker(self, number: int) -> None:
        worker = self._workers[number] = await self._start_worker()
        session = worker.session
        # The state may have changed since the process was started.
        session.send_state(self._state, self._backend)
        if self._killing:
            worker.kill()
        await session.lost.wait()
        self._acceptor.remove(worker.worker_socket)
        self._become_ready()
        try:
            code = await asyncio.wait_for(worker.process.wait(), LAST_SECONDS)
        except TimeoutError:
            worker.kill()
            code = await worker.process.wait()
        del self._workers[number]
        worker.worker_socket.close()
        counters = sum_snapshots((session.metric_values,), without=GAUGES)
        self._ended_workers = sum_snapshots((self._ended_workers, counters))
        if not self._leaving.is_set():
            self._worker_deaths.add()
            self._log.report("http_process_died", stage="process", exit_code=code, worker=number)

    async def _start_worker(self) -> _Worker:
        """Start a worker with its channel and the socket that passes connections."""
        channel, child_channel = socket.socketpair()
        worker_socket, child_socket = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sockets = (child_channel.fileno(), child_socket.fileno())
        with child_channel, child_socket:
            # A session of its own, so that a terminal's Ctrl-C reaches the supervisor only, also
            # while the worker still imports.
            process = await asyncio.create_subprocess_exec(
                *self._spec.command,
                *map(str, sockets),
                pass_fds=sockets,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

        def session() -> WorkerSession:
            return WorkerSession(
                state=self._state,
                backend=self._backend,
                acknowledged=lambda state: self._acknowledged(worker_socket, state),
                engine_broke=self._engine_broke,
                failed=lambda fault: self._log.report(
                    "request_failed", fault, stage="process", status=503
                ),
                all_metric_values=self.metric_values,
            )

        loop = asyncio.get_running_loop()
        _, connected = await loop.create_unix_connection(session, sock=channel)
        return _Worker(process, connected, worker_socket)
