"""One JSON line per failure on stderr, few enough to read, written where no request waits."""

from __future__ import annotations

import json
import os
import queue
import threading
import time
import traceback
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal

LINES_PER_SECOND = 10
"""Of one event; further lines are counted, and the count is logged."""
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
        self._windows: dict[str, _Window] = {}
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
            window = self._windows.setdefault(event, _Window(self._clock()))
            if not window.admits(self._clock()) or self._lines.qsize() >= BACKLOG_LINES:
                window.suppressed += 1
                return
        fields = {"status": status, "stage": stage} | numbers
        if fault is not None:
            fields |= _failure_fields(fault, stage)
        self._lines.put(_line(level, self._model, event, fields))

    def close(self) -> None:
        """Write what waits."""
        self._lines.put(None)
        self._thread.join(timeout=2)

    def _write_on(self) -> None:
        ended = False
        while not ended:
            try:
                line = self._lines.get(timeout=1)
                ended = line is None
            except queue.Empty:
                line = None
            for text in (*([] if line is None else [line]), *self._suppressed(everything=ended)):
                try:
                    self._write(text)
                except (OSError, ValueError):
                    return

    def _suppressed(self, *, everything: bool) -> list[bytes]:
        """Return a line for each event whose second is over and of which lines were left out."""
        now, lines = self._clock(), []
        with self._lock:
            for event, window in self._windows.items():
                if window.suppressed and (everything or window.over(now)):
                    fields = {"suppressed": window.suppressed}
                    lines.append(_line("warning", self._model, event, fields))
                    window.suppressed = 0
        return lines


class _Window:
    """The lines of an event within one second."""

    __slots__ = ("begin", "lines", "suppressed")

    def __init__(self, begin: float) -> None:
        self.begin, self.lines, self.suppressed = begin, 0, 0

    def over(self, now: float) -> bool:
        return now - self.begin >= 1

    def admits(self, now: float) -> bool:
        """Count a line, and return whether this second has room for it."""
        if self.over(now):
            self.begin, self.lines = now, 0
        self.lines += 1
        return self.lines <= LINES_PER_SECOND


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
