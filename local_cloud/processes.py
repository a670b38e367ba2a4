"""The one place that starts processes: each in namespaces of its own, each ending with the cloud."""

from __future__ import annotations

import functools
import shutil
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PID_NAMESPACE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")
NETWORK_NAMESPACE = ("--net", "--mount")
TRIAL_SECONDS = 60
"""Far beyond what a kernel takes that allows namespaces: whoever is taken for one that does not
stays it.
"""

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
    """Starts a process that the kernel kills when the cloud dies; its words are added to the log."""
    return _starter.submit(_start, command, dict(environment), folder, log, pass_fds).result()


def _start(
    command: tuple[str, ...],
    environment: dict[str, str],
    folder: Path,
    log: Path,
    pass_fds: tuple[int, ...],
) -> subprocess.Popen[bytes]:
    with log.open("ab") as words:
        return subprocess.Popen(
            (*_tie(), *command),
            env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=words, stderr=subprocess.STDOUT,
            pass_fds=pass_fds, start_new_session=True,
        )  # fmt: skip


@functools.cache
def _tie() -> tuple[str, ...]:
    setpriv = shutil.which("setpriv")
    return () if setpriv is None else (setpriv, "--pdeathsig", "KILL", "--")


@functools.cache
def namespaces(*, own_network: bool) -> tuple[str, ...]:
    """The command prefix that gives a process namespaces of its own; empty when this kernel allows
    none.
    """
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
