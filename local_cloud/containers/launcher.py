"""The first process of a local container: it starts the server and connects the cloud to it.

It runs as a script, with the standard library only. Over the control socket `c` asks for a
connection to the server's port, made inside the container's network; `t` sends SIGTERM to the
server's process group, and `s` to the server alone, as a container's stop does. The socket's end
means that the cloud is gone, and ends the server's group too.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import fcntl
import os
import signal
import socket
import struct
import subprocess
import threading

SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 0x1


def main() -> None:
    """Runs one container until its server ends, and ends with the server's exit status."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--control", type=int, required=True)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--isolated", action="store_true")
    parser.add_argument("command", nargs="+")
    arguments = parser.parse_args()
    if arguments.isolated:
        bring_up_loopback()
        mount_shared_memory()
    server = subprocess.Popen(arguments.command, stdin=subprocess.DEVNULL, start_new_session=True)
    control = socket.socket(fileno=arguments.control)
    threading.Thread(
        target=serve_control, args=(control, arguments.port, server.pid), daemon=True
    ).start()
    status = wait_reaping(server.pid)
    end(server.pid, signal.SIGKILL)
    os._exit(status if status >= 0 else 128 - status)


def bring_up_loopback() -> None:
    """Raises the container's own loopback device, which a fresh network namespace has down."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = fcntl.ioctl(probe, SIOCGIFFLAGS, struct.pack("16sh14x", b"lo", 0))
        flags = struct.unpack("16sh14x", request)[1]
        fcntl.ioctl(probe, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", flags | IFF_UP))


def mount_shared_memory() -> None:
    """Gives the container its own /dev/shm, so that nothing of it stays behind."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"") != 0:
        print(
            f"warning: /dev/shm is the machine's own ({os.strerror(ctypes.get_errno())})",
            flush=True,
        )


def serve_control(control: socket.socket, port: int, server_pid: int) -> None:
    """Answers the cloud's requests until its end of the socket closes."""
    while True:
        try:
            request = control.recv(1)
        except OSError:
            request = b""
        if request == b"c":
            send_connection(control, port)
        elif request == b"t":
            end(server_pid, signal.SIGTERM)
        elif request == b"s":
            with contextlib.suppress(ProcessLookupError):
                os.kill(server_pid, signal.SIGTERM)
        elif request == b"":
            end(server_pid, signal.SIGKILL)
            os._exit(137)


def send_connection(control: socket.socket, port: int) -> None:
    """Send a connection to the server, or the byte `n` while the server does not listen."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            socket.send_fds(control, [b"y"], [connection.fileno()])
    except OSError:
        control.sendall(b"n")


def end(server_pid: int, number: int) -> None:
    """Signals the server and all that share its session's process group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(server_pid, number)


def wait_reaping(server_pid: int) -> int:
    """Waits for the server, and buries the orphans that fall to a first process meanwhile."""
    while True:
        pid, status = os.wait()
        if pid == server_pid:
            return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    main()
