"""Accepts connections in the supervisor and passes them to the HTTP workers in turn.

Workers that accept from one listening socket by themselves get very unequal shares: of 64
connections, one of six took all.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque

WORD = b"c"
ACCEPTED_AT_ONCE = 32
RETRY_SECONDS = 0.01


class Acceptor:
    """Accepts for the workers that serve; without one, connections wait in the listening socket."""

    def __init__(self, listener: socket.socket) -> None:
        listener.setblocking(False)
        self._listener = listener
        self._worker_sockets: deque[socket.socket] = deque()
        self._unsent: socket.socket | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._accepting = False

    def __len__(self) -> int:
        """The number of workers that serve."""
        return len(self._worker_sockets)

    def add(self, worker_socket: socket.socket) -> None:
        """Pass connections to a worker through its socket from now on."""
        if worker_socket in self._worker_sockets:
            return
        # send_fds of Python 3.11 and 3.12 drops the flags that it is given.
        worker_socket.setblocking(False)
        self._worker_sockets.append(worker_socket)
        self._start_accepting()

    def remove(self, worker_socket: socket.socket) -> None:
        """Pass no further connections to a worker."""
        if worker_socket in self._worker_sockets:
            self._worker_sockets.remove(worker_socket)
        if not self._worker_sockets:
            self._stop_accepting()

    def close(self) -> None:
        """Refuse new connections."""
        self._stop_accepting()
        self._worker_sockets.clear()
        if self._unsent is not None:
            self._unsent.close()
        self._listener.close()

    def _start_accepting(self) -> None:
        if not self._accepting and self._listener.fileno() >= 0:
            self._accepting = True
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _stop_accepting(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        if self._accepting:
            self._accepting = False
            self._loop.remove_reader(self._listener.fileno())

    def _accept(self) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            if self._unsent is None:
                try:
                    self._unsent, _ = self._listener.accept()
                except BlockingIOError:
                    return
                except OSError:  # out of descriptors, or the client left already
                    self._pause()
                    return
            if not self._pass_on(self._unsent):
                self._pause()
                return
            self._unsent.close()
            self._unsent = None

    def _pass_on(self, connection: socket.socket) -> bool:
        """Send a connection to the next worker whose socket has room."""
        for _ in range(len(self._worker_sockets)):
            worker_socket = self._worker_sockets[0]
            self._worker_sockets.rotate(-1)
            try:
                socket.send_fds(worker_socket, [WORD], [connection.fileno()])
            except OSError:  # full, or its process has just died
                continue
            return True
        return False

    def _pause(self) -> None:
        self._stop_accepting()
        self._retry = self._loop.call_later(RETRY_SECONDS, self._again)

    def _again(self) -> None:
        self._retry = None
        if self._worker_sockets:
            self._start_accepting()
            self._accept()


def receive_connection(worker_socket: socket.socket) -> socket.socket | None:
    """Return the next connection from the supervisor; `None` when there is none now.

    The socket must not block. Raises EOFError when the supervisor is gone, OSError when this
    process has no file descriptor left for the connection, which is closed.
    """
    try:
        word, descriptors, _, _ = socket.recv_fds(worker_socket, len(WORD), 1)
    except BlockingIOError:
        return None
    if not word:
        raise EOFError
    if not descriptors:
        reason = "a connection was closed: this process has no file descriptor left for it"
        raise OSError(errno.EMFILE, reason)
    return socket.socket(fileno=descriptors[0])
