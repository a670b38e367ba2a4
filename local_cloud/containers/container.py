"""A local container: a command in namespaces of its own, reached through its launcher."""

from __future__ import annotations

import functools
import logging
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

SERVER_PORT = 8080
LAUNCHER = Path(__file__).with_name("launcher.py")
logger = logging.getLogger("roundhouse.container")


@dataclass(frozen=True, kw_only=True)
class ContainerSpec:
    """A container's process; `own_network` gives it a loopback of its own and nothing else."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    own_network: bool = True


class NotListening(OSError):
    """The container's server does not accept connections."""


@dataclass(kw_only=True)
class Container:
    """A started container."""

    spec: ContainerSpec
    process: subprocess.Popen[bytes]
    control: socket.socket
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def connection(self, timeout_seconds: float) -> socket.socket:
        """A fresh connection to the server's port, made inside the container's network."""
        with self._turn:
            try:
                self.control.sendall(b"c")
                _answer, fds, _, _ = socket.recv_fds(self.control, 1, 1)
            except OSError as error:
                raise NotListening("the container has ended") from error
        if not fds:
            raise NotListening(f"nothing listens on port {SERVER_PORT} in the container")
        connection = socket.socket(fileno=fds[0])
        connection.settimeout(timeout_seconds)
        return connection

    def exit_status(self) -> int | None:
        """How the server ended; None while it runs."""
        return self.process.poll()

    def stop(self, grace_seconds: float, *, first_process_only: bool = False) -> None:
        """Send SIGTERM, to all processes or to the first, and end the container some time later."""
        try:
            self.control.sendall(b"s" if first_process_only else b"t")
            self.process.wait(grace_seconds)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
        finally:
            self.control.close()
            self.process.wait()


def start_container(spec: ContainerSpec, prefix: tuple[str, ...] | None = None) -> Container:
    """Start a container; without namespaces its server gets a free port on 127.0.0.1."""
    prefix = namespaces(own_network=spec.own_network) if prefix is None else prefix
    isolated = spec.own_network and bool(prefix)
    port = SERVER_PORT if isolated or not spec.own_network else free_port()
    if not prefix:
        _warn(spec)
    ours, theirs = socket.socketpair()
    with theirs:
        options = ("--control", str(theirs.fileno()), "--port", str(port))
        launcher = (sys.executable, "-I", "-S", str(LAUNCHER), *options)
        command = (*prefix, *launcher, *(("--isolated",) if isolated else ()), "--", *spec.command)
        port_variable = {"SAGEMAKER_BIND_TO_PORT": str(port)} if spec.own_network else {}
        process = start_process(
            command,
            environment={**spec.environment, **port_variable},
            folder=spec.folder,
            log=spec.log,
            pass_fds=(theirs.fileno(),),
        )
    return Container(spec=spec, process=process, control=ours)


def _warn(spec: ContainerSpec) -> None:
    sentence = (
        "warning: this kernel allows no namespaces, so the process shares the machine's "
        "network and processes"
    )
    logger.warning("%s (%s)", sentence, spec.command[0])
    with spec.log.open("a", encoding="utf-8") as log:
        log.write(sentence + "\n")


def free_port() -> int:
    """Return a port that nothing listens to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


PID_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
NETWORK_NAMESPACE = ("--net", "--mount")
TRIAL_SECONDS = 60
"""Far beyond what a kernel takes that allows namespaces; the result is cached."""

# A process asks the kernel for a signal when its parent *thread* ends, so all are started by one
# thread that never does.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="starter")


def start_process(
    command: tuple[str, ...],
    *,
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    pass_fds: tuple[int, ...] = (),
) -> subprocess.Popen[bytes]:
    """Start a process that the kernel kills when the cloud dies; its output goes to the log."""

    def start() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                (*_tie(), *command),
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=pass_fds,
                start_new_session=True,
            )

    return _starter.submit(start).result()


@functools.cache
def _tie() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "KILL", "--")


@functools.cache
def namespaces(*, own_network: bool) -> tuple[str, ...]:
    """Return the command prefix for namespaces; empty when this kernel allows none."""
    base = (*PID_NAMESPACE, *(NETWORK_NAMESPACE if own_network else ()))
    for prefix in ((*base, "--mount-proc"), base):
        if _works(prefix):
            return (*prefix, "--")
    return ()


def _works(prefix: tuple[str, ...]) -> bool:
    try:
        done = subprocess.run(
            (*prefix, "true"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TRIAL_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
