"""Runs a user's `preprocess` or `postprocess` in a process of its own.

Self-contained, on numpy and the standard library: archives carry this file beside the `model.py`
of their pre- and postprocessing, and the build runs it on its first samples. A fault of the user's
code, a crash, an endless loop, what it prints and what it keeps in memory stay in that process,
which is killed. It has no variables of the environment, so no credentials; it is no sandbox against
malice.

`python -I -u processing.py FILE FUNCTION DESCRIPTOR` is the process: it reads tensors from a socket
and writes its answers there. Both are one message: its length in 8 bytes, a line of JSON, and the
tensors' bytes one after the other.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Tensors = Mapping[str, Array]
START_SECONDS = 60.0
"""Longest that the process may take to import the user's file."""
LARGEST_MESSAGE = 1 << 30
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1"}
PR_SET_PDEATHSIG = 1
"""prctl(2): the signal that a process gets when the one that started it ends."""
READY, ANSWER, REFUSED, FAILED = "ready", "answer", "refused", "failed"
"""Kinds of messages from the process: REFUSED is the client's fault, FAILED the code's."""


class ProcessingFailed(Exception):
    """The user's code gave no answer; the message is a sentence without its values."""


class Processing:
    """A user's function in a process of its own, started anew after it crashed or hung."""

    def __init__(self, file: Path, function: str, *, seconds: float) -> None:
        """Start the process. `seconds`: longest that a call may take.

        Raises ProcessingFailed when the file cannot be imported or has no such function.
        """
        self._file, self._function, self._seconds = file, function, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None
        self._start()

    def call(self, tensors: Tensors) -> dict[str, Array]:
        """Return what the function makes of one request's tensors, by name.

        Raises ValueError with the function's own sentence for the client, and ProcessingFailed.
        """
        if self._process is None:
            self._start()
        assert self._connection is not None
        deadline = time.monotonic() + self._seconds
        try:
            send(self._connection, {"kind": "call"}, tensors, deadline)
            header, answer = receive(self._connection, deadline)
        except TimeoutError:
            self.close()
            raise ProcessingFailed(
                f"{self._function}() took more than {self._seconds:g} s and was stopped"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise ProcessingFailed(self._end(fault)) from None
        if header["kind"] == REFUSED:
            raise ValueError(header["sentence"])
        if header["kind"] != ANSWER:
            raise ProcessingFailed(header["sentence"])
        return answer

    def close(self) -> None:
        """Kill the process."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is not None:
            process.kill()
            process.wait()
        if connection is not None:
            connection.close()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        arguments = (str(self._file.resolve()), self._function, str(theirs.fileno()))
        with theirs:
            self._process = subprocess.Popen(
                (interpreter(), "-I", "-u", str(Path(__file__).resolve()), *arguments),
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr.fileno() if _has_stderr() else subprocess.DEVNULL,
                env=ENVIRONMENT,
                cwd="/",
                pass_fds=(theirs.fileno(),),
            )
        self._connection = ours
        try:
            header, _ = receive(ours, time.monotonic() + START_SECONDS)
        except TimeoutError:
            self.close()
            raise ProcessingFailed(
                f"{self._file.name} took more than {START_SECONDS:g} s to import"
            ) from None
        except (OSError, ValueError) as fault:
            raise ProcessingFailed(self._end(fault)) from None
        if header["kind"] != READY:
            self.close()
            raise ProcessingFailed(header["sentence"])

    def _end(self, fault: Exception) -> str:
        """Return how the process ended, or what it sent instead of a message, and stop it."""
        process = self._process
        code: int | None = None
        if process is not None and isinstance(fault, OSError):
            with suppress(subprocess.TimeoutExpired):
                code = process.wait(1)
        self.close()
        if code is None:
            return f"{self._function}() did not answer: {fault}"
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        return f"the process of {self._function}() ended {how}"


def interpreter() -> str:
    """Return the Python of this process; inside Triton's stub the first one on PATH."""
    running = Path(sys.executable or "")
    if running.name.startswith("python") and os.access(running, os.X_OK):
        return str(running)
    return shutil.which("python3") or "python3"


def send(
    connection: socket.socket, header: Mapping[str, Any], tensors: Tensors, deadline: float | None
) -> None:
    """Send one message. Raises TimeoutError after `deadline`, a time of the monotonic clock."""
    pieces, records = [], []
    for name, array in tensors.items():
        data = _bytes_of(array)
        dtype = "BYTES" if array.dtype == object else array.dtype.str
        shape = list(array.shape)
        records.append({"name": name, "dtype": dtype, "shape": shape, "size": len(data)})
        pieces.append(data)
    head = json.dumps({**header, "tensors": records}).encode() + b"\n"
    size = len(head) + sum(map(len, pieces))
    connection.settimeout(_seconds_left(deadline))
    connection.sendall(b"".join((size.to_bytes(8, "little"), head, *pieces)))


def receive(
    connection: socket.socket, deadline: float | None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return one message's header and tensors.

    Raises TimeoutError after `deadline`, ConnectionError at the end, ValueError for no message.
    """
    size = int.from_bytes(_read(connection, 8, deadline), "little")
    if size > LARGEST_MESSAGE:
        raise ValueError(f"a message of {size} bytes is above {LARGEST_MESSAGE}")
    head, _, data = _read(connection, size, deadline).partition(b"\n")
    header = json.loads(head)
    tensors, offset = {}, 0
    for record in header["tensors"]:
        end = offset + record["size"]
        tensors[record["name"]] = _array(record, data[offset:end])
        offset = end
    return header, tensors


def _seconds_left(deadline: float | None) -> float | None:
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _read(connection: socket.socket, size: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while size:
        connection.settimeout(_seconds_left(deadline))
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError("the other end is closed")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _bytes_of(array: Array) -> bytes:
    """Return an array's bytes; of texts each with its length before it, in 4 bytes."""
    if array.dtype != object:
        data: bytes = np.ascontiguousarray(array).tobytes()
        return data
    texts = [item if isinstance(item, bytes) else str(item).encode() for item in array.reshape(-1)]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _array(record: Mapping[str, Any], data: bytes) -> Array:
    shape = tuple(record["shape"])
    if record["dtype"] != "BYTES":
        numbers: Array = np.frombuffer(bytearray(data), np.dtype(record["dtype"])).reshape(shape)
        return numbers
    texts, offset = [], 0
    while offset < len(data):
        end = offset + 4 + int.from_bytes(data[offset : offset + 4], "little")
        texts.append(data[offset + 4 : end])
        offset = end
    array: Array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def _has_stderr() -> bool:
    try:
        os.fstat(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        return False
    return True


def load_function(file: Path, name: str) -> Callable[..., Any]:
    """Import a file and return its function. Raises what its code raises, and AttributeError."""
    spec = importlib.util.spec_from_file_location("user_code", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["user_code"] = module
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, name)
    return function


def answer_call(function: Callable[[dict[str, Array]], Any], name: str, tensors: Tensors) -> Any:
    """Return the header and the tensors that a call is answered with."""
    try:
        result = function(dict(tensors))
        if not isinstance(result, Mapping) or not all(isinstance(key, str) for key in result):
            kind = type(result).__name__
            raise TypeError(f"{name}() returned {kind}; it must return a dict of arrays by name")
        return {"kind": ANSWER}, {key: _as_tensor(value) for key, value in result.items()}
    except ValueError as fault:
        return {"kind": REFUSED, "sentence": str(fault) or f"{name}() refuses the request"}, {}
    except Exception as fault:
        traceback.print_exc()
        return {"kind": FAILED, "sentence": f"{name}() failed with {_described(fault)}"}, {}


def _as_tensor(value: Any) -> Array:
    array: Array = np.asarray(value)
    if array.dtype.kind in "US":  # numpy's own texts have one width; a tensor's have any
        return array.astype(object)
    items: list[Any] = list(array.flat) if array.dtype == object else []
    if not all(isinstance(item, str | bytes) for item in items):
        raise TypeError("an array of objects must hold str or bytes")
    return array


def _described(fault: BaseException) -> str:
    lines = str(fault).strip().splitlines()
    return f"{type(fault).__name__}: {lines[0]:.200}" if lines else type(fault).__name__


def main(file: str, name: str, descriptor: str) -> None:
    """Answer calls until the other end is closed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with socket.socket(fileno=int(descriptor)) as connection:
        try:
            function = load_function(Path(file), name)
        except BaseException as fault:
            traceback.print_exc()
            sentence = f"{Path(file).name} cannot be imported: {_described(fault)}"
            send(connection, {"kind": FAILED, "sentence": sentence}, {}, None)
            return
        send(connection, {"kind": READY}, {}, None)
        with suppress(ConnectionError):
            while True:
                _, tensors = receive(connection, None)
                header, answer = answer_call(function, name, tensors)
                send(connection, header, answer, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
