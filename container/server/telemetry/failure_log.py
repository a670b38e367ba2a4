"""One JSON line per failure on stderr, few enough to read, written where no request waits."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

LINES_PER_SECOND = 10
"""Of one event; the next line has the number of those that were left out, `suppressed`."""
BACKLOG_LINES = 1000
"""Lines that may wait for a slow reader of stderr; further lines are counted."""
Level = Literal["warning", "error"]
Part = Literal["engine", "http"]


def stderr(line: bytes) -> None:
    """Write a line to stderr in one piece, past Python's own buffer that the prints share."""
    os.write(2, line)


class FailureLog:
    """Lines of JSON with rate limits per event.

    `report` may be called in any thread and never blocks.
    """

    def __init__(
        self,
        write: Callable[[bytes], object],
        *,
        model: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`write` is called in the log's own thread, with a line and its line feed."""
        self._write, self._model, self._clock = write, model, clock
        self._lines: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._windows: dict[str, tuple[float, int, int]] = {}
        """By event: when its second began, its lines in that second, and those left out."""
        self._thread = threading.Thread(target=self._write_on, name="failure log", daemon=True)
        self._thread.start()

    def report(
        self,
        event: str,
        fault: BaseException | None = None,
        *,
        stage: Part,
        level: Level = "error",
        status: int | None = None,
        **numbers: float,
    ) -> None:
        """Log one failure; `numbers` are counts, seconds and exit codes."""
        with self._lock:
            now = self._clock()
            begin, lines, suppressed = self._windows.get(event, (now, 0, 0))
            if now - begin >= 1:
                begin, lines = now, 0
            admitted = lines < LINES_PER_SECOND and self._lines.qsize() < BACKLOG_LINES
            self._windows[event] = begin, lines + 1, 0 if admitted else suppressed + 1
        if not admitted:
            return
        fields = {"status": status, "stage": stage, "suppressed": suppressed or None} | numbers
        if fault is not None:
            fields |= _failure_fields(fault, stage)
        self._lines.put(_line(level, self._model, event, fields))

    def close(self) -> None:
        """Write what waits."""
        self._lines.put(None)
        self._thread.join(timeout=2)

    def _write_on(self) -> None:
        with suppress(OSError, ValueError):  # stderr is closed
            while (line := self._lines.get()) is not None:
                self._write(line)


def _failure_fields(fault: BaseException, stage: Part) -> dict[str, Any]:
    """Return a fault's type, and the engine's message or the frames of our own bug.

    The message of a bug may quote a client's text, so it is never logged.
    """
    fields: dict[str, Any] = {"exception": type(fault).__name__}
    if stage == "engine":
        return fields | {"message": str(fault)[:2000]}
    frames = traceback.extract_tb(fault.__traceback__)
    return fields | {"traceback": [f"{item.filename}:{item.lineno} {item.name}" for item in frames]}


def _line(level: Level, model: str | None, event: str, fields: dict[str, Any]) -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    document = {"time": now, "level": level, "model": model, "event": event} | fields
    known = {name: value for name, value in document.items() if value is not None}
    text = json.dumps(known, ensure_ascii=False, separators=(",", ":"))
    return text.encode(errors="replace") + b"\n"
