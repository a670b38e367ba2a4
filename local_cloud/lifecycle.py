"""Starting, finding and stopping the local cloud from any Python; standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from local_cloud.address import ADDRESS_FILE, CloudAddress, is_alive, process_start, read_address

LOG_FILE = "cloud.log"
LOCK_FILE = "start.lock"
OWN_NAMES = (ADDRESS_FILE, LOG_FILE, LOCK_FILE, "endpoints", "builds", "backends", "cache")
START_SECONDS = 60.0
STOP_SECONDS = 15.0
REMOVE_SECONDS = 15.0
STARTED = b"1"
"""What the starter of a cloud's process sends it once the process may outlive it."""
PROBE_BYTES = 1024 * 1024


class CloudError(Exception):
    """The local cloud cannot be started or stopped; the message is one sentence for the user."""


def start(
    root: Path, state: Path, port: int | None = None, *, environments: Path | None = None
) -> CloudAddress:
    """Starts a local cloud, or returns the one that already runs in this state folder.

    `root` holds the packages; `environments` None: they lie in its `.venvs`.
    """
    _make_state(state)
    with _start_lock(state):
        running = find(state)
        if running is not None:
            return running
        _remove_leftovers(state, keep=(LOCK_FILE,))
        ours, theirs = socket.socketpair()
        # An interruption may come before this process knows the other one's id: that one ends by
        # itself where `ours` closes without a word.
        with ours:
            with theirs, _reserve_port(port) as listener:
                places = {
                    "--root": root.resolve(),
                    "--environments": (environments or root / ".venvs").resolve(),
                    "--state": state.resolve(),
                }
                pid = _spawn(places, listener, theirs)
            address = _wait_until_answering(pid, state)
            ours.sendall(STARTED)
        return address


def find(state: Path) -> CloudAddress | None:
    """Return the local cloud that runs in this state folder, whatever files a killed one left."""
    address = read_address(state)
    return address if address is not None and is_alive(address) else None


def stop(state: Path) -> bool:
    """Stop the local cloud of a state folder and remove its files; False when there were none."""
    address = read_address(state)
    if address is not None:
        _end(address)
    had_files = any((state / name).exists() for name in OWN_NAMES)
    _remove_leftovers(state)
    with contextlib.suppress(OSError):
        state.rmdir()
    return had_files


def environment(
    address: CloudAddress, account: str = "000000000000", region: str = "us-east-1"
) -> dict[str, str]:
    """Return the variables of an AWS client; a 12-digit access key is the account."""
    return {
        "AWS_ENDPOINT_URL": address.endpoint_url,
        "AWS_ENDPOINT_URL_S3": address.endpoint_url,
        "AWS_ACCESS_KEY_ID": account,
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_REGION": region,
        "AWS_DEFAULT_REGION": region,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


def client_environment(
    address: CloudAddress,
    inherited: Mapping[str, str],
    account: str = "000000000000",
    region: str = "us-east-1",
) -> dict[str, str]:
    """Return a client process's environment: the inherited one without AWS settings, then ours."""
    kept = {name: value for name, value in inherited.items() if not name.startswith("AWS_")}
    return kept | _without_proxy(inherited) | environment(address, account, region)


def _without_proxy(inherited: Mapping[str, str]) -> dict[str, str]:
    """Keeps requests to this machine away from a proxy, where one is set."""
    if not any(name.lower() in ("http_proxy", "all_proxy") for name in inherited):
        return {}
    listed = inherited.get("NO_PROXY", inherited.get("no_proxy", ""))
    local = ",".join(part for part in (listed, "127.0.0.1", "localhost") if part)
    return {"NO_PROXY": local, "no_proxy": local}


def _make_state(state: Path) -> None:
    try:
        state.mkdir(parents=True, exist_ok=True)
        probe = state / f".writable.{os.getpid()}"
        try:
            # On a full disk an empty file can still be made.
            probe.write_bytes(bytes(PROBE_BYTES))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        raise CloudError(
            f"the local cloud cannot write its state folder {state} ({error.strerror}): choose "
            "or free another folder"
        ) from error


@contextlib.contextmanager
def _start_lock(state: Path) -> Iterator[None]:
    """Lets one start at a time look, choose and spawn."""
    with (state / LOCK_FILE).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _remove_leftovers(state: Path, keep: tuple[str, ...] = ()) -> None:
    """Removes what a local cloud makes in its state folder, and nothing else that lies there."""
    for name in OWN_NAMES:
        path = state / name
        if name in keep:
            continue
        if path.is_dir() and not path.is_symlink():
            _remove_tree(path)
        else:
            path.unlink(missing_ok=True)


def _remove_tree(path: Path) -> None:
    """Removes a folder in which a dying process may still write for a moment."""
    deadline = time.monotonic() + REMOVE_SECONDS
    while path.exists():
        shutil.rmtree(path, ignore_errors=time.monotonic() < deadline)
        time.sleep(0.02)


def _reserve_port(port: int | None) -> socket.socket:
    """A socket that reserves a port, a free one unless it is named, for the cloud's process."""
    listener = socket.socket()
    try:
        if port is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", 0 if port is None else port))
    except OSError as error:
        listener.close()
        raise CloudError(
            f"port {port} on 127.0.0.1 is not free ({error.strerror}): name another one or let "
            "the local cloud choose"
        ) from error
    return listener


def _spawn(places: Mapping[str, Path], listener: socket.socket, starter: socket.socket) -> int:
    """Start the cloud's process in its own session, so that it outlives this one.

    It gets its folders by their options, `listener`, which holds its port, and the other end of
    its starter's socket.
    """
    python = places["--environments"] / "cloud" / "bin" / "python"
    if not python.exists():
        raise CloudError(
            f"the local cloud's environment {python.parent.parent} is missing: `make "
            "environments` makes it"
        )
    handed = {"--listener": listener.fileno(), "--starter": starter.fileno()}
    values = {**places, "--port": listener.getsockname()[1], **handed}
    module = ("-P", "-m", "local_cloud")
    options = tuple(str(word) for item in values.items() for word in item)
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "PYTHON"))
    }
    with (places["--state"] / LOG_FILE).open("ab") as log, Path(os.devnull).open("rb") as nothing:
        standard = ((nothing.fileno(), 0), (log.fileno(), 1), (log.fileno(), 2))
        # A descriptor that is duplicated to its own number is inherited.
        descriptors = (*standard, *((number, number) for number in handed.values()))
        return os.posix_spawn(
            python,
            (str(python), *module, *options),
            inherited | {"PYTHONPATH": str(places["--root"])},
            file_actions=[(os.POSIX_SPAWN_DUP2, *pair) for pair in descriptors],
            setsid=True,
        )


def _wait_until_answering(pid: int, state: Path) -> CloudAddress:
    deadline = time.monotonic() + START_SECONDS
    try:
        while time.monotonic() < deadline:
            address = read_address(state)
            if address is not None and address.pid == pid:
                return address
            if _has_ended(pid):
                raise CloudError(
                    f"the local cloud stopped while starting: {_last_log_line(state)} (log: "
                    f"{state / LOG_FILE})"
                )
            time.sleep(0.02)
        raise CloudError(
            f"the local cloud did not answer within {START_SECONDS:.0f} s (log: {state / LOG_FILE})"
        )
    except BaseException:
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise


def _has_ended(pid: int) -> bool:
    """Whether a process of ours has ended; buries it if so."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return process_start(pid) is None


def _last_log_line(state: Path) -> str:
    lines = (state / LOG_FILE).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it left no word")


def _end(address: CloudAddress) -> None:
    """Terminate the cloud's process, and kill it when it does not end; its children end too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        if not is_alive(address):
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(address.pid, number)
        deadline = time.monotonic() + STOP_SECONDS
        while is_alive(address) and time.monotonic() < deadline:
            _has_ended(address.pid)
            time.sleep(0.02)
        _has_ended(address.pid)
    if is_alive(address):
        raise CloudError(
            f"the local cloud's process {address.pid} does not end: stop it by hand, then try again"
        )
